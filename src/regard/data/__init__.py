"""Files become examples, examples become batches."""
