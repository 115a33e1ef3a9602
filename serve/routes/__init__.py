"""The routes, one file for each thing that callers deal with."""
