"""A party's rows: read from a table through a schema, and summed."""
