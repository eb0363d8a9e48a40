"""Statistical queries: their expressions, their notation and their exact sums."""
