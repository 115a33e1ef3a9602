"""Where memories live: vectors in Milvus, rounds in a database, pictures in a folder."""

import os

# Milvus Lite speaks gRPC inside the process, which logs a line at every fork of Ray's.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
