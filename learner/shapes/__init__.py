"""What a model adds to the score for each value of a column: shapes to look at, and the explanation of one row."""
