"""Side by side with other packages, as ratios in one run."""
