"""The console of a party: each page and action is a function of the configuration and a visit."""
