"""The threat model's tables of coalitions and of rules, computed by dpcore.research.who_learns_what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from docs.generate.tables import table
from dpcore.research.who_learns_what.learning import FAULTS, Change, Coalition, Findings, Setting, findings

# Parties, c, and how many of the parties collude. More honest parties take minutes and show nothing that three do not.
_NO_MEMBERS = [(2, 0, 0), (3, 0, 0), (3, 1, 0), (4, 2, 0), (5, 3, 0)]
_UP_TO_C = [(3, 1, 1), (4, 1, 1), (4, 2, 1), (4, 2, 2), (5, 2, 2), (5, 3, 2), (5, 3, 3)]
_MORE = [(2, 0, 1), (3, 0, 1), (3, 0, 2), (3, 1, 2), (4, 1, 2), (4, 1, 3), (4, 2, 3), (5, 2, 3), (5, 3, 4)]
_ANY = [*_UP_TO_C, *_MORE]


@dataclass(frozen=True)
class _Row:
    """A kind of coalition, in settings of different sizes."""

    words: str
    settings: Sequence[tuple[int, int, int]]
    learner: bool = False
    coordinator: bool = False

    def cells(self, *, outsider: bool) -> list[str]:
        """What the model finds in the worst setting."""
        roles = {"learner": self.learner, "coordinator": self.coordinator, "outsider": outsider}
        found = [findings(Setting.of(*sizes, **roles)) for sizes in self.settings]
        changes = frozenset(change for each in found for change in each.changes)
        return [_learned(found), "it opens the total itself" if self.learner else _changed(changes)]


_ROWS = (
    _Row("nobody, so with an outsider: an outsider alone", _NO_MEMBERS),
    _Row("coordinator", _NO_MEMBERS, coordinator=True),
    _Row("members, any number", _ANY),
    _Row("coordinator and members, any number", _ANY, coordinator=True),
    _Row("learner", _NO_MEMBERS, learner=True),
    _Row("learner and coordinator", _NO_MEMBERS, learner=True, coordinator=True),
    _Row("learner and up to c members", _UP_TO_C, learner=True),
    _Row("learner, coordinator and up to c members", _UP_TO_C, learner=True, coordinator=True),
    _Row("learner and more than c members", _MORE, learner=True),
    _Row("learner, coordinator and more than c members", _MORE, learner=True, coordinator=True),
)


def coalitions_tables() -> str:
    """What each coalition gets today, and what if one rule is left out."""
    header = ["who colludes", "learns of honest parties' inputs", "changes of a total that the learner accepts"]
    alone = [[row.words, *row.cells(outsider=False)] for row in _ROWS]
    joined = [[row.words, *row.cells(outsider=True)] for row in _ROWS]
    if alone != joined:
        header = [*header, "with an outsider: learns", "with an outsider: changes"]
        alone = [[*one, *other[1:]] for one, other in zip(alone, joined, strict=True)]
        same = "The last two columns are for the same coalition with an outsider.\n"
    else:
        same = "The same holds for each of these coalitions with an outsider.\n"
    rules = table(["left out", "who gains", "what the model reports then", "what prevents it"], _rules())
    return "\n".join([table(header, alone), same, rules])


def _learned(found: Sequence[Findings]) -> str:
    excess = sorted({extra for each in found for extra in each.excess})
    fewest = min(each.fewest for each in found)
    if not fewest:
        totals = "nothing"
    elif fewest == 1:
        totals = "as above, where one honest party may be alone: then its own sum"
    else:
        totals = "for each attempt, the total over all honest members of its cohort, at least two"
    return "; and ".join([totals, *excess])


def _changed(changes: frozenset[Change]) -> str:
    return "; ".join(change for change in Change if change in changes) or "none"


def _rules() -> Iterator[list[str]]:
    for fault in FAULTS.values():
        today, then = findings(fault.by), findings(fault.by, fault.protocol)
        reported = [*sorted(then.excess - today.excess), *(c for c in Change if c in then.changes - today.changes)]
        yield [fault.words, _who(fault.by.coalition), "; ".join(reported) or "nothing", fault.rule]


def _who(coalition: Coalition) -> str:
    taking_part = {
        "learner": coalition.learner,
        "coordinator": coalition.coordinator,
        "a member": bool(coalition.members),
        "an outsider": coalition.outsider,
    }
    return " and ".join(who for who, is_there in taking_part.items() if is_there)
