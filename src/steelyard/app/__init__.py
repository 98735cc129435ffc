"""Two tables in, a diagnosis, a model and a report out: the command line and what is behind it."""
