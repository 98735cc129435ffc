"""Kernel mean matching of mini-batches."""
