"""Image files become examples, examples become batches."""
