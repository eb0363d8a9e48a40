"""The most that one query may ask for: what a plan must know without anything that travels."""

MAX_VALUES = 1 << 28
MAX_PARTIES = 1 << 16
