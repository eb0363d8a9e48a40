"""Rademacher observations: designs, signatures, supports, and the sums over them."""
