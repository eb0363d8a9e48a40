"""What the reports of a party and of a learner share: style, tables, parts of plots, and sentences of the registry."""
