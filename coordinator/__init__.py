"""The coordinator: forms cohorts and multiplies ciphertexts that it cannot read."""
