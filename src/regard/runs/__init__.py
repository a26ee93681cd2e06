"""A run on the disk: its lock, and what its directory says of it."""
