"""radofed: organisations that may not share a row learn one linear classifier together."""
