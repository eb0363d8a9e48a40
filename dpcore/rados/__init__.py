"""Rademacher observations: designs, signatures, supports, and sums over them."""
