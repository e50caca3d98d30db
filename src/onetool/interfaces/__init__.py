"""Doors: decode, call the app, encode. Nothing else."""
