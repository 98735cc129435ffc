"""Training runs for every deep method of the survey."""
