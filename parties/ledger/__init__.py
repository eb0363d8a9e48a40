"""A party's privacy budget: charges, limits, and the durable ledger."""
