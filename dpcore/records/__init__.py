"""Schema and records: how columns become coordinates, and rows in memory that are clipped and summed exactly."""
