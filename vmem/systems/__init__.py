"""The door for systems: rows of tables by name, and what builds and answers for each of them.

`rows.py` reads the rows of `configs/systems/`, `registry.py` makes the system that a row names.
"""
