"""A party's privacy budget: charges, limits, and the ledger that holds them durably."""
