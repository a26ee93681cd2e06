"""Text: files of it become examples and batches of token ids."""
