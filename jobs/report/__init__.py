"""The tables of a report: the paper's, ours beside them, and those that only we have."""
