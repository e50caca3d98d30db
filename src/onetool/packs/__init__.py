"""The built-in packs, written with the public SDK."""
