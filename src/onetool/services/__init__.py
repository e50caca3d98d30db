"""Parts that stand alone: none knows another."""
