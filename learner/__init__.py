"""The learner: holds the Paillier secret key, opens totals only, trains on them."""
