"""The attention of a model: recorded while it runs, measured, and drawn."""
