"""The one place where rows are assigned to folds, and which rows are held out together."""
