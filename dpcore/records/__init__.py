"""Schema and records: encoding of columns as coordinates, and exact clipping and sums of rows in memory."""
