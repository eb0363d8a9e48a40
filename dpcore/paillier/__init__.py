"""Packed Paillier sums. `secret` is for the learner alone."""
