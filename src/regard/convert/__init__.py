"""Other people's models: their names and settings here, ours there, by tables that are read both ways."""
