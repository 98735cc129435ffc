"""Bugs that are planted by hand, one at a time, to see that a test fails: `python -m tests.planted [NAME …]`."""
