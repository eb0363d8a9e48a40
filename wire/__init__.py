"""The wire: messages, signed envelopes, identity, errors and transport."""
