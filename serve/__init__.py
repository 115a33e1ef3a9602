"""The serving cluster: memories over HTTP, on Ray Serve."""
