"""Kernels: fast paths for the definitions in `nn/`. Each is one file; `table.py` chooses between them."""
