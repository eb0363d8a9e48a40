"""Estimates of a batch of predicates, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dpcore.data_frames import load_pandas
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import upper
from dpcore.predicates.expressions import Predicate
from dpcore.predicates.notation import to_text
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.features import nearest
from dpcore.statistics.accuracy import Estimates
from radobase.presentation.notebook import fragment

Asked = Mapping[str, Predicate | str] | Sequence[Predicate | str]
"""Predicates, or their texts, by name or in a list."""


def unnamed(asked: Asked) -> Sequence[Predicate | str]:
    """The predicates without their names. Raises ConfigurationError if a name is empty, or no text."""
    if not isinstance(asked, Mapping):
        return asked
    for name in asked:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"a statistic is called {name!r}: give it a name, a text that is not empty")
    return list(asked.values())


@dataclass(frozen=True, eq=False)
class NamedEstimates(Estimates):
    """Estimates, each with a name: `found["old"]`. Without a name it is the predicate's text."""

    asked: Asked = field(default=(), repr=False)
    privacy: PrivacyStatement | None = None
    """Of the release that answered; None if there is none."""

    @classmethod
    def of(cls, found: Estimates, asked: Asked, privacy: PrivacyStatement | None) -> "NamedEstimates":
        """These estimates of these predicates."""
        own = {each.name: getattr(found, each.name) for each in fields(Estimates)}
        return cls(**own, asked=asked, privacy=privacy)

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the values."""
        if isinstance(self.asked, Mapping):
            return tuple(self.asked)
        return tuple(each if isinstance(each, str) else to_text(each) for each in self.asked)

    def __getitem__(self, name: str) -> float:
        """The estimate of this name. Raises ConfigurationError if there is none."""
        names = self.names
        if name not in names:
            raise ConfigurationError(f"nothing was asked under {name!r}; {nearest(name, names)}")
        return float(self.values[names.index(name)])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ends = ("rows", "confidence", "tolerance", "sampling", "quantisation", "noise")
        return {
            "estimates": dict(zip(self.names, self.values.tolist(), strict=True)),
            **{name: getattr(self, name) for name in ends},
            "premise": self.premise,
            "privacy": None if self.privacy is None else self.privacy.to_dict(),
        }

    def to_columns(self) -> dict[str, list[Any]]:
        """predicate, estimate, lower, upper: a list for each, for data frames and R's as.data.frame.

        The ends are the estimate less and plus the tolerance, so all intervals hold together with the confidence.
        """
        ends = {"lower": self.values - self.tolerance, "upper": self.values + self.tolerance}
        figures = {"estimate": self.values, **ends}
        return {"predicate": list(self.names), **{name: values.tolist() for name, values in figures.items()}}

    def to_pandas(self) -> Any:
        """A data frame of `to_columns`, indexed by the names. Raises ConfigurationError if pandas is not installed."""
        return load_pandas("to_columns()").DataFrame(self.to_columns()).set_index("predicate")

    def sentences(self) -> list[str]:
        """What the figures hold for, and what the answer reveals."""
        held = (
            f"With probability {self.confidence:g} all estimates are within {upper(self.tolerance, 4)} of the shares "
            f"among rows like the {self.rows} of the parties: {self.premise}."
        )
        nothing = "Nothing is measured: every share is between 0 and 1. Ask with a larger epsilon."
        said = [held, nothing] if self.tolerance >= 1.0 else [held]
        return [*said, *([] if self.privacy is None else self.privacy.short_sentences())]

    def __str__(self) -> str:
        each = [f"{name}: {value:.4f}" for name, value in zip(self.names, self.values.tolist(), strict=True)]
        return "\n".join([*each, *self.sentences()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        width = upper(self.tolerance, 4)
        rows = [(name, f"{value:.4f}", width) for name, value in zip(self.names, self.values.tolist(), strict=True)]
        return fragment("", self.sentences(), [("Estimates", ("predicate", "share of rows", "+-"), rows)])
