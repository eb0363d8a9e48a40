"""Seeds of past queries, for parties to compare: version 0.2.0 did not ensure that all had the same one.

With unequal seeds a learner could open one party's sum (docs/SECURITY.md, RADO-2026-1). Each party still finds its own
seed in a signed query, and equal seeds give equal digits.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from parties.config import PartyConfig
from parties.history.history import Page
from parties.history.reading import HistoryReader
from wire.envelopes import SigningKey
from wire.query import Query


@dataclass(frozen=True)
class SeedRead:
    """The seed of a query that was charged."""

    query_id: bytes
    shown_at_unix_s: float
    learner: str | None
    digits: str | None
    """None if the signed query or a seed for this party is not there."""

    def to_dict(self) -> dict[str, object]:
        """All fields by name, in JSON types."""
        return {
            "query_id": self.query_id.hex(),
            "shown_at_unix_s": self.shown_at_unix_s,
            "learner": self.learner,
            "digits": self.digits,
        }


@dataclass(frozen=True)
class Seeds:
    """Queries that were charged, by whether their seeds were checked."""

    unchecked: tuple[SeedRead, ...]
    """Queries whose seeds parties did not check, newest first."""
    checked: int
    """How many had a checked seed."""


def seeds_of(config: PartyConfig) -> Seeds:
    """The seeds of all queries that were charged to this party, also while its node runs. Changes nothing.

    Queries of version 0.1 are left out: they have no seed and no tag. Raises what HistoryReader and SigningKey.load
    raise.
    """
    key = SigningKey.load(config.signing_key, config.federation)
    found, checked = [], 0
    with HistoryReader(config) as reader:
        for read in _charged(reader):
            # Those of a page are without their envelopes.
            (shown,) = reader.history.find(read.hex())
            query = None if shown.envelope is None else Query.from_bytes(shown.envelope.payload)
            if query is not None and query.binding is None:
                continue
            if query is not None and not query.is_older:
                checked += 1
                continue
            digits = (
                None if query is None or query.binding is None else query.binding.digits(config.name, key, query.nonce)
            )
            found.append(SeedRead(shown.query_id, shown.shown_at_unix_s, shown.learner, digits))
    return Seeds(tuple(found), checked)


def _charged(reader: HistoryReader) -> Iterator[bytes]:
    every = Page(until_unix_s=time.time())
    return (each.shown.query_id for each in reader.every(every) if each.charged)
