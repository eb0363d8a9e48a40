"""Central private empirical risk minimisation: the reference for the federated form."""
