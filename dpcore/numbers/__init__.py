"""Exact numbers: rationals, fixed point, integer bounds, distributions of counts, and compiled functions."""
