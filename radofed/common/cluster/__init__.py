"""A Ray cluster of an organisation's own: reached safely, and given one job at a time."""
