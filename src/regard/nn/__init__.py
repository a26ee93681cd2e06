"""The parts. They know nothing of text, tasks or files."""
