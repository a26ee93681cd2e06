"""Checks that must hold for every checkpoint. A task supplies a probe: its model and inputs for it."""
