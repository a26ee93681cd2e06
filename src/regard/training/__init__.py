"""The loop that trains, and what it needs."""
