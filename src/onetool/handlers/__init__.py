"""Ways to carry a call out."""
