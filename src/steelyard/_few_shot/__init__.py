"""Shared code of the methods that learn from a few labeled target rows."""
