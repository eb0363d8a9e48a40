"""From a design's name and options to the learner's query and the parties' computation.

The query is a `learner.requests.Request`, planned by learner.planning like any other. A draw over the pool
(split = exact) exists in simulation only: the query does not state it, and parties compute another kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.rados.designs import Split
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from learner.design_options import check_delta, check_figures, check_options, given_options
from learner.requests import USUAL_RADOS, Request, rados_within, release_request
from wire.query import Query, setting_of
from wire.query_kinds import Kind

_EXACT = ("epsilon", "epsilon_per_rado", "norm_bound", "support")
_WORDS = {
    "rados": "a number of rados",
    "sensitive": "a sensitive feature",
    "rounded": "a rounded feature",
    "joint": "joint",
    "epsilon": "epsilon",
    "epsilon_per_rado": "epsilon per rado",
    "split": "split = exact",
    "norm_bound": "a norm bound",
    "support": "a support",
}
HONEST_COORDINATOR = (
    "One draw over the pool was divided by the coordinator (split = exact), which knows every party's part: the "
    "figures assume that it does so honestly and tells no one. No node offers this; it is for simulation."
)

NOT_THE_COORDINATOR = (
    "The figure under collusion is for the learner and all other parties. It does not cover the coordinator, even "
    "if a sentence above says so."
)


def given_words(options: Mapping[str, Any]) -> list[str]:
    """The options of `DesignOptions` that differ from their defaults, in words. options: by name."""
    words = {"name": "the design", **_WORDS}
    return [words[name] for name in given_options(options)]


@dataclass(frozen=True)
class DesignOptions:
    """The design of a release and its options.

    name: one of `learner.design_options.DESIGNS`. rados: n; None takes min(1000, m/2), or fewer if dp-feat's epsilon
    needs it. sensitive: the features that dp-feat protects. rounded: those of them that are numbers, which are rounded
    to a sign. joint: dp-feat protects the source column of the one sensitive feature within the whole release. epsilon,
    delta: the target of the whole release. epsilon_per_rado: Algorithm 2's truncation. split: see `Split`. norm_bound:
    R, the clipping norm of records. support: the fraction of its records that a rado takes. feature_map: what records
    are mapped by before they are clipped; a plan refuses it for designs that take none.

    Raises ConfigurationError if an option is out of range or does not belong to the design.
    """

    name: str = "plain"
    rados: int | None = None
    sensitive: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    joint: bool = False
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(1, 10**6)
    epsilon_per_rado: Fraction | None = None
    split: Split = "local"
    norm_bound: Fraction | None = None
    support: Fraction | None = None
    feature_map: FeatureMap | None = None

    def __post_init__(self) -> None:
        if self.rados is not None and self.rados < 2:
            raise ConfigurationError(f"{self.rados} rados are too few to train on: choose at least 2")
        check_figures({name: getattr(self, name) for name in _EXACT})
        check_delta(self.delta)
        if self.split not in ("local", "exact"):
            raise ConfigurationError(f"split is {self.split!r}: choose local or exact")
        given = given_options({name: getattr(self, name) for name in _WORDS})
        check_options(self.name, given, chosen=("rados",), hints={"sensitive": ": name one"})
        if self.split == "exact" and self.name == "dp-feat" and self.epsilon_per_rado is None:
            raise ConfigurationError("split = exact divides a truncated draw: give epsilon per rado")

    def request(self, schema: Schema, folds: Sequence[Sequence[int]]) -> Request:
        """The learner's request in every fold. folds: the parties' numbers of training rows, for each fold.

        Raises PlanError if two rados, or `rados` of them, cost more than epsilon.
        """
        marginal = self.name == "dp-feat" and not self.joint
        options = {
            "rados": None if self.name == "moments" else self._rados(folds),
            "sensitive": self.sensitive,
            "joint": self.joint,
            "rounded": self.rounded,
            # A divided pool is truncated as a whole: the query does not state it.
            "epsilon_per_rado": None if self.split == "exact" else self.epsilon_per_rado,
            "epsilon": None if marginal else self.epsilon,
            "delta": self.delta,
            "norm_bound": self.norm_bound,
            "support": self.support,
        }
        return replace(release_request(schema, self.name, options), feature_map=self.feature_map)

    def _rados(self, folds: Sequence[Sequence[int]]) -> int:
        usual = max(2, min(USUAL_RADOS, min(map(sum, folds)) // 2))
        if self.epsilon is None or self.name != "dp-feat" or self.joint:
            return self.rados or usual
        pools = {(sum(rows),) if self.split == "exact" else tuple(sorted(rows)) for rows in folds}
        # One rado teaches nothing.
        most = rados_within(self.epsilon, self.delta, pools, self.epsilon_per_rado, asked=self.rados, fewest=2)
        return self.rados or min(most, usual)

    def divided(self, asked: Kind) -> RadosQuery | None:
        """The kind that parties compute of a divided pool; None if each party draws its own signatures."""
        if self.split == "local":
            return None
        assert isinstance(asked, RadosQuery), "a split is of rados"
        return replace(asked, design=asked.design.pooled(self.epsilon_per_rado))

    def statement(self, kind: Kind, query: Query, party_rows: Sequence[int]) -> PrivacyStatement:
        """The privacy statement of one fold's release. kind: what parties computed. Raises PlanError."""
        said = statement_for(kind, party_rows, query.delta, schema=query.schema, setting=setting_of(query))
        if self.split == "exact":
            # The coordinator knows the count of the record's own party: the total does not hide it.
            counted = (NOT_THE_COORDINATOR,) if self.name == "dp-feat" else ()
            return replace(said, assumptions=(HONEST_COORDINATOR, *counted, *said.assumptions))
        return said
