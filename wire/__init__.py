"""What all roles share of the transport: identity, signed envelopes, messages, errors, configuration, logging."""
