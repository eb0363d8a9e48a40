"""From a design's name and options to the learner's query and the parties' computation.

The query is a `learner.requests.Request`, planned by learner.planning like any other. A draw over the pool
(split = exact) exists in simulation only: the query does not state it, and parties compute another kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated

from dpcore.errors import ConfigurationError
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from learner.design_options import check_options, given_options
from learner.requests import Request, rados_within, release_request
from wire.query import Query, setting_of
from wire.query_kinds import Kind
from wire.request_fields import DELTA, SPLIT, USUAL_DELTA, USUAL_RADOS, ReleaseFields, Split

HONEST_COORDINATOR = (
    "One draw over the pool was divided by the coordinator (split = exact), which knows every party's part: the "
    "figures assume that it does so honestly and tells no one. No node offers this; it is for simulation."
)

NOT_THE_COORDINATOR = (
    "The figure under collusion is for the learner and all other parties. It does not cover the coordinator, even "
    "if a sentence above says so."
)


@dataclass(frozen=True, kw_only=True)
class DesignOptions(ReleaseFields):
    """The design of a release and its options.

    Without `rados` it takes min(1000, m/2), or fewer if dp-feat's epsilon needs it. Raises ConfigurationError if an
    option is out of range or does not belong to the design.
    """

    delta: Annotated[Fraction, DELTA] = USUAL_DELTA
    split: Annotated[Split, SPLIT] = "local"
    feature_map: FeatureMap | None = None
    """What records are mapped by before they are clipped; a plan refuses it for designs that take none."""

    def __post_init__(self) -> None:
        if self.rados is not None and self.rados < 2:
            raise ConfigurationError(f"{self.rados} rados are too few to train on: choose at least 2")
        super().__post_init__()
        given = given_options(self) | ({"split": self.split} if self.split == "exact" else {})
        check_options(self.design_name, given, chosen=("rados",), hints={"sensitive": ": name one"})
        if self.split == "exact" and self.design == "dp-feat" and self.epsilon_per_rado is None:
            raise ConfigurationError("split = exact divides a truncated draw: give epsilon per rado")

    def request(self, schema: Schema, folds: Sequence[Sequence[int]]) -> Request:
        """The learner's request in every fold. folds: the parties' numbers of training rows, for each fold.

        Raises PlanError if two rados, or `rados` of them, cost more than epsilon.
        """
        asked = replace(
            self,
            rados=None if self.design_name == "moments" else self._rados(folds),
            # A divided pool is truncated as a whole: the query does not state it.
            epsilon_per_rado=None if self.split == "exact" else self.epsilon_per_rado,
            split="local",
        )
        if self.design == "dp-feat" and not self.joint:
            # Its epsilon has determined the number of rados.
            asked = replace(asked, epsilon=None)
        request = release_request(schema, asked, delta=self.delta)
        return replace(request, feature_map=self.feature_map)

    def _rados(self, folds: Sequence[Sequence[int]]) -> int:
        usual = max(2, min(USUAL_RADOS, min(map(sum, folds)) // 2))
        if self.epsilon is None or self.design != "dp-feat" or self.joint:
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
            counted = (NOT_THE_COORDINATOR,) if self.design == "dp-feat" else ()
            return replace(said, assumptions=(HONEST_COORDINATOR, *counted, *said.assumptions))
        return said
