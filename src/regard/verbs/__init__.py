"""One file per verb of the command line that is more than a call."""
