"""Measurements: `make bench` prints a table a subject. What counts are the ratios, taken in one run on one machine."""
