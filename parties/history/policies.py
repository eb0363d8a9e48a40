"""Under which policies a party decided: each decision in the history names the policy's digest and its limits."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parties.history.database import HistoryDatabase
from parties.history.history import What
from parties.policy import Policy

_DECIDED = f"""SELECT at_unix_s, coalesce(json_extract(details, '$.policy'), ''),
    coalesce(json_extract(details, '$.limits'), '') FROM events
    WHERE what IN ('{What.ACCEPTED.value}', '{What.REFUSED.value}') AND at_unix_s < ? AND json_valid(details)
    ORDER BY at_unix_s, rowid"""  # noqa: S608  (constants of this program)


@dataclass(frozen=True)
class PolicyRead:
    """Decisions in a row under one policy."""

    digest: str
    """`Policy.digest`."""
    limits: str
    """In words. first, last: their times."""
    first_unix_s: float
    last_unix_s: float
    decisions: int


@dataclass(frozen=True)
class PoliciesRead:
    """The policies of all decisions that are kept, oldest first."""

    policies: tuple[PolicyRead, ...]
    unknown: int
    """Decisions that name none."""

    @property
    def limits(self) -> tuple[PolicyRead, ...]:
        """As `policies`, with those in a row joined that have equal limits, under the digest of the last."""
        found: list[PolicyRead] = []
        for each in self.policies:
            if found and found[-1].limits == each.limits:
                last = found.pop()
                decisions = last.decisions + each.decisions
                found.append(replace(each, first_unix_s=last.first_unix_s, decisions=decisions))
            else:
                found.append(each)
        return tuple(found)


def facts_of(policy: Policy) -> dict[str, str]:
    """What a decision's event says of the policy that it followed."""
    return {"policy": policy.digest, "limits": str(policy.limits.of_ledger)}


def policies_of(database: HistoryDatabase, before_unix_s: float) -> PoliciesRead:
    """The policies of the decisions before a time. Raises what HistoryDatabase raises."""
    with database.reading() as connection:
        return _joined(connection.execute(_DECIDED, (before_unix_s,)).fetchall())


def _joined(decisions: Iterable[tuple[float, str, str]]) -> PoliciesRead:
    found: list[PolicyRead] = []
    unknown = 0
    for at_unix_s, digest, limits in decisions:
        if not digest:
            unknown += 1
        elif found and (found[-1].digest, found[-1].limits) == (digest, limits):
            found.append(replace(found[-1], last_unix_s=at_unix_s, decisions=found.pop().decisions + 1))
        else:
            found.append(PolicyRead(digest, limits, at_unix_s, at_unix_s, 1))
    return PoliciesRead(tuple(found), unknown)
