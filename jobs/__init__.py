"""Batch jobs, each run as `python -m jobs.<name>` or by the `vmem` command."""
