"""What a model attends to: watched while it runs, measured, and drawn."""
