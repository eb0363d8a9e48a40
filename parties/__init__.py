"""A party: holds rows, policy, ledger and identity key; sends one encrypted sum a query and nothing else."""
