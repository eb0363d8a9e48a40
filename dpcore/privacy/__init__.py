"""Privacy counted exactly, and stated with its unit, scope and assumptions."""
