"""An evaluation: its plan, its folder, its models, and the order of its stages."""
