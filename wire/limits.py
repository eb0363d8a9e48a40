"""Limits of one query. A plan needs them without the rest of the wire package."""

MAX_VALUES = 1 << 28
MAX_PARTIES = 1 << 16
