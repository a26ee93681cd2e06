"""One shape per file."""
