"""Pictures for papers and slides. They need matplotlib (the extra `plot`)."""
