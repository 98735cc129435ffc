"""Studies that make one page each."""
