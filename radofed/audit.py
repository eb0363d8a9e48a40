"""Compares the histories of members of one federation: the same queries, cohorts and digests, or where they differ.

A history is what `rado ledger history --format json` or `rado learner history --format json` prints. It is what its
owner says: a comparison shows contradictions between owners, and nothing that all of them leave out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radobase.reading import FileKind, read_json, with_remedy

_HISTORY = FileKind(
    with_remedy("give what `rado ledger history --format json` or `rado learner history --format json` printed"),
    limit_bytes=256 << 20,
)


@dataclass(frozen=True)
class Exported:
    """A history from a file. since_unix_s, until_unix_s: the times of its oldest and newest query."""

    name: str
    path: Path
    queries: Mapping[str, Mapping[str, Any]]
    since_unix_s: float
    until_unix_s: float

    @classmethod
    def load(cls, path: Path) -> "Exported":
        """Raises ConfigurationError if the file is not an exported history."""
        content = read_json(path, _HISTORY)
        try:
            queries = {query["query_id"]: query for query in content["data"]["queries"]}
            times = [float(query["shown_at_unix_s"]) for query in queries.values()]
            for query in queries.values():
                _check(query)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _HISTORY.error(path, f"not an exported history: {type(error).__name__}") from error
        return cls(path.stem, path, queries, min(times, default=0.0), max(times, default=0.0))


def cohorts(query: Mapping[str, Any]) -> dict[int, tuple[str, dict[str, int]]]:
    """Of each attempt that was charged or opened: the cohort's digest, and its members with their rows, if known."""
    if "opened_attempt" in query:
        opened = query["opened_attempt"]
        return {} if opened is None else {opened: (query["cohort_digest"], dict(query["cohort"]))}
    charged = [attempt for attempt in query["attempts"] if attempt["charged"] and attempt["cohort_digest"]]
    return {attempt["attempt"]: (attempt["cohort_digest"], dict(attempt["cohort"] or {})) for attempt in charged}


def _check(query: Mapping[str, Any]) -> None:
    """Raise TypeError or KeyError if a comparison could not read a query."""
    texts = [query["query_id"], query["learner"], query["kind"], *(digest for digest, _ in cohorts(query).values())]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(n, int) for n in cohorts(query)):
        raise TypeError("a query's fields have other types")


@dataclass(frozen=True)
class Comparison:
    """What two histories agree on in the time that both cover. differences: one sentence each."""

    agreed: int
    only: Mapping[str, Sequence[str]]
    """The queries that the other history lacks, by the name of each history; of two with one name, by their paths."""
    differences: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing contradicts. A query that only one was shown is no contradiction."""
        return not self.differences


def compare(first: Exported, second: Exported) -> Comparison:
    """Compare two histories.

    A query is one signed text in both, as its id is the text's digest. An attempt has one cohort: if two members were
    charged for different ones, somebody showed them different cohorts.
    """
    since, until = max(first.since_unix_s, second.since_unix_s), min(first.until_unix_s, second.until_unix_s)

    def alone(one: Exported, other: Exported) -> list[str]:
        return [
            query_id
            for query_id, query in one.queries.items()
            if query_id not in other.queries and since <= query["shown_at_unix_s"] <= until
        ]

    both = [query_id for query_id in first.queries if query_id in second.queries]
    found = {query_id: _differences(first.queries[query_id], second.queries[query_id]) for query_id in both}
    differences = [f"query {query_id[:16]}: {text}" for query_id, texts in found.items() for text in texts]
    # Files of two members may have one name.
    names = (first.name, second.name) if first.name != second.name else (str(first.path), str(second.path))
    only = dict(zip(names, (alone(first, second), alone(second, first)), strict=True))
    return Comparison(sum(not texts for texts in found.values()), only, tuple(differences))


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Where two members' records of one query contradict each other."""
    found = [
        f"{what} {ours[what]!r} in the first and {theirs[what]!r} in the second"
        for what in ("learner", "kind")
        if ours[what] and theirs[what] and ours[what] != theirs[what]
    ]
    first, second = cohorts(ours), cohorts(theirs)
    for attempt in sorted(set(first) & set(second)):
        (digest, members), (other_digest, others) = first[attempt], second[attempt]
        if digest != other_digest:
            found.append(f"attempt {attempt}: cohort {digest[:16]} in the first, {other_digest[:16]} in the second")
        elif members and others and members != others:
            found.append(f"attempt {attempt}: cohort {digest[:16]} has other members or rows")
    return found
