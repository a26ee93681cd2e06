"""Text: what becomes examples and batches of token ids."""
