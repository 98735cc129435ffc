"""The survey's tables, each by one command: ``steelyard reproduce``."""
