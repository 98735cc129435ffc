"""What methods with a few labelled target rows share."""
