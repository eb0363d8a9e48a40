"""Designs: which signatures a party may draw.

A design is plain data. It travels inside a query, the draws follow it (dpcore.rados.signatures) and the privacy
statement is counted from it (dpcore.privacy.statement).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpcore.errors import PlanError


@dataclass(frozen=True)
class PlainDesign:
    """Signatures uniform over all of {-1, +1}^m. Protects nothing by a bound that is counted here."""


@dataclass(frozen=True)
class DpFeatDesign:
    """Signatures whose sensitive coordinate is central (Nock, Patrini, Friedman, ICML 2015, Algorithm 2, DP-FEAT).

    sensitive: index of the protected coordinate, which is coded -1/+1. sensitive_name: its name in the schema, for
    people and statements. epsilon_per_rado: Algorithm 2's epsilon, an exact positive rational; None draws uniform
    signatures, which gives the lowest exact epsilon (dpcore.privacy.dp_feat). split: "local", each party truncates its
    own k by its own row count.

    Raises PlanError where a field is out of range.
    """

    sensitive: int
    sensitive_name: str
    epsilon_per_rado: Fraction | None
    split: Literal["local"] = "local"

    def __post_init__(self) -> None:
        if self.sensitive < 0:
            raise PlanError(f"the sensitive coordinate is {self.sensitive}: give its index, 0 or more")
        if not self.sensitive_name:
            raise PlanError("the sensitive coordinate has no name: give the one that the schema uses")
        if self.epsilon_per_rado is not None:
            if not isinstance(self.epsilon_per_rado, Fraction):
                raise PlanError("epsilon_per_rado must be an exact fraction: write Fraction(1, 2), not 0.5")
            if self.epsilon_per_rado <= 0:
                raise PlanError(f"epsilon_per_rado is {self.epsilon_per_rado}: make it positive, or leave it out")
            if max(self.epsilon_per_rado.numerator, self.epsilon_per_rado.denominator) > LARGEST_INTEGER:
                raise PlanError("epsilon_per_rado has more than 63 bits above or below the line: write it shorter")
        if self.split != "local":
            raise PlanError(f"split is {self.split!r}: only 'local' is known")


# An exact parameter travels as a pair of 64-bit integers; a larger one could also make its exact evaluation slow.
LARGEST_INTEGER = (1 << 63) - 1

Design = PlainDesign | DpFeatDesign
