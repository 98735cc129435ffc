"""Which rows are held out together: the one place where rows are assigned to folds."""
