"""The groups of modules that are mutated, mutants that survived with a reason, and the order of a mutant's tests."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = ROOT / "tests/mutation/survivors.toml"
GROUPS = {
    "ledger": ("parties/ledger/", "parties/ledger/witnessed.py", "parties/answering/witnesses.py"),
    "policy": ("parties/policy.py",),
    "paillier": ("dpcore/paillier/",),
    "validation": ("wire/", "parties/answering/decisions.py", "parties/rosters.py"),
    "accounting": ("dpcore/accounting/", "dpcore/numbers/distributions.py"),
}


def group_of(path: str) -> str:
    """The group of a file of the repository."""
    return next(group for group, starts in GROUPS.items() if path.startswith(starts))


@dataclass(frozen=True)
class Survivor:
    """A mutant that survived. function: with its class. change: the line before and after."""

    path: str
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path} {self.function}: {self.before} => {self.after}"

    @classmethod
    def of(cls, text: str) -> "Survivor":
        """Reads `str(survivor)`."""
        place, _, change = text.partition(": ")
        path, _, function = place.partition(" ")
        before, _, after = change.partition(" => ")
        return cls(path, function, before, after)


def explained() -> Counter[Survivor]:
    """The survivors that have a reason. The same change can be made several times in one function."""
    reasons = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))["reason"]
    return Counter(Survivor.of(text) for reason in reasons for text in reason["mutants"])


def batches(tests: Sequence[str]) -> Iterator[Sequence[str]]:
    """The first 8 tests, the next 40 and the rest, in the given order. No batch is empty.

    Most mutants that fail do so in the fastest few tests. pytest collects every file of its tests before it runs one.
    """
    left = tests
    for size in (8, 40, len(tests)):
        if left:
            yield left[:size]
        left = left[size:]


def first_failure(tests: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """The exit status of the first batch that does not pass, after which none runs; 0 if all pass."""
    return next((status for status in map(run, batches(tests)) if status), 0)
