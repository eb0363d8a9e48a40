"""Private empirical risk minimisation where the rows are: the reference beside the federated form."""
