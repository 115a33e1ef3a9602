"""vmem: long-term memory for assistants whose users mix text and pictures (V-Mem)."""
