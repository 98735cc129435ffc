"""What methods with a few labeled target rows share."""
