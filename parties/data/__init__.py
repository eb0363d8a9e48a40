"""A party's rows: reads them from a table through a schema, and sums them."""
