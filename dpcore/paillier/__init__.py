"""Packed Paillier sums. Only the learner uses `secret`."""
