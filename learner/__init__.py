"""The learner: holds the Paillier secret key, opens only totals, and trains on them."""
