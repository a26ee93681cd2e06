"""The schema of a run, and how it is read. Standard library only."""
