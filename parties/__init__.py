"""A party: holds rows, policy, ledger and identity key; sends only one encrypted sum per query."""
