"""Where memories live: vectors in Milvus, rounds in a database, pictures in a folder."""

import os

# Milvus Lite speaks gRPC inside the process, which logs forks and pings; its failures are raised.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
