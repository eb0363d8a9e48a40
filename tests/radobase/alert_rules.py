"""Evaluates the expressions of alert rules: comparisons of metrics, arithmetic, `increase` and `time()`.

A part of Prometheus's language, with its meaning: a comparison keeps the series for which it is true, and operators
match series with equal labels. Anything else is an error.
"""

import operator
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.radobase.scraping import Scrape

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy/alerts").glob("*.yml"))
_SELECTOR = re.compile(r"\b(?P<name>up|rado_\w+)(?P<labels>\{[^}]*\})?(?P<range>\[\w+\])?")
_LABEL = re.compile(r'(\w+)(=~?)"([^"]*)"')


def rules() -> dict[str, dict]:
    """All alert rules, by name."""
    groups = [group for file in FILES for group in yaml.safe_load(file.read_text())["groups"]]
    found = [rule for group in groups for rule in group["rules"]]
    by_name = {rule["alert"]: rule for rule in found}
    assert len(by_name) == len(found)
    return by_name


def metrics_of(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    return {match["name"] for match in _SELECTOR.finditer(expression)}


@dataclass(frozen=True)
class Vector:
    """Series with their values, by labels."""

    series: dict[frozenset, float]

    def _with(self, other, combine):
        if isinstance(other, Vector):
            pairs = {labels: (value, other.series.get(labels)) for labels, value in self.series.items()}
            return {labels: combine(*pair) for labels, pair in pairs.items() if pair[1] is not None}
        return {labels: combine(value, other) for labels, value in self.series.items()}

    def __sub__(self, other):
        return Vector(self._with(other, operator.sub))

    def __truediv__(self, other):
        return Vector(self._with(other, operator.truediv))

    def _kept(self, other, compare):
        kept = self._with(other, compare)
        return Vector({labels: value for labels, value in self.series.items() if kept.get(labels)})

    def __bool__(self):
        raise TypeError("`and`, `or` and chains of comparisons are not known here")

    def __lt__(self, other):
        return self._kept(other, operator.lt)

    def __gt__(self, other):
        return self._kept(other, operator.gt)

    def __eq__(self, other):
        return self._kept(other, operator.eq)

    __hash__ = None


@dataclass(frozen=True)
class Moment:
    """What a server knows when it evaluates rules: the last scrape, one before it, and the time."""

    now: Scrape
    before: Scrape = field(default_factory=Scrape)
    unix_s: float = 0.0

    def firing(self, expression: str) -> dict[frozenset, float]:
        """The series for which an alert with this expression fires."""
        python = _SELECTOR.sub(_selected, expression)
        found = eval(python, {"__builtins__": {}}, {"s": self._series, "increase": self._increase, "time": self._time})
        assert isinstance(found, Vector), expression
        return found.series

    def _series(self, name, labels, of_range):
        wanted = {key: value for key, value in labels.items() if key != "job"}
        now, before = (_matching(scrape.series(name, {}), wanted) for scrape in (self.now, self.before))
        return (now, before) if of_range else Vector(now)

    def _increase(self, both):
        now, before = both
        return Vector({labels: max(0.0, now[labels] - before[labels]) for labels in now.keys() & before.keys()})

    def _time(self):
        return self.unix_s


def _matching(series: dict[frozenset, float], wanted: dict[str, str]) -> dict[frozenset, float]:
    return {
        labels: value
        for labels, value in series.items()
        if all(re.fullmatch(pattern, dict(labels).get(name, "")) for name, pattern in wanted.items())
    }


def _selected(match: re.Match) -> str:
    found = _LABEL.findall(match["labels"] or "")
    # A label that is compared by "=" has itself as its only value.
    labels = {name: text if by == "=~" else re.escape(text) for name, by, text in found}
    return f"s({match['name']!r}, {labels!r}, {match['range'] is not None})"
