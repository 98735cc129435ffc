"""The engine of the experiments: it computes, stores, summarizes and prints the cells of a table."""
