"""What must hold of every checkpoint. A task hands over a probe: its model, and what to ask it."""
