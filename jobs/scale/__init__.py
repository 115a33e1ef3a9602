"""What the scale benchmark is made of: conversations, a Milvus of its own, stages, a report."""
