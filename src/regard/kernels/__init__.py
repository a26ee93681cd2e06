"""THE MACHINE: fast paths for what `nn/` defines. One file is one of them; `table.py` says which is taken."""
