"""What computes, stores, sums up and prints the cells of an experiment."""
