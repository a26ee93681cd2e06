"""Attention without training: training points are keys, what was seen there are values, a new point is a query."""
