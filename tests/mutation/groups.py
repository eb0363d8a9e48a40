"""The groups of modules that are mutated, and the mutants that survived with a reason."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = ROOT / "tests/mutation/survivors.toml"
GROUPS = {
    "ledger": ("parties/ledger/", "parties/answering/unknown_names.py", "parties/answering/witnesses.py"),
    "policy": ("parties/policy.py",),
    "paillier": ("dpcore/paillier/",),
    "validation": ("wire/", "parties/answering/decisions.py", "parties/rosters.py"),
    "accounting": ("dpcore/accounting/", "dpcore/numbers/normal.py"),
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
