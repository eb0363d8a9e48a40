"""Generated bindings of the wire, by version."""
