"""A run on the disk: its lock, its summary, and listings."""
