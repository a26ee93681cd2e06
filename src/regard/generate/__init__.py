"""Choosing the next token, again and again."""
