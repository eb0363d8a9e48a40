"""Releases of several epochs as one sample, and what their composition protects: what monthly retraining learns from.

Each month adds a release of its new rows, which is charged to the budget of those rows alone. Training on all releases
so far is post-processing. Releases of rows that are the same rows would count them twice, so each is of another epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.pooled import check_forgetting, pooled_moments, pooled_rados
from dpcore.queries.statement import PrivacyStatement
from dpcore.rados.distribution import Moments
from dpcore.records.features import two_classes
from dpcore.records.schema import Schema
from learner.composition import FIXED_NOISE, composed_privacy
from learner.release import Release
from wire.query import Query

PARALLEL = (
    "The releases are of {epochs} different epochs of rows. A record is in one of them, so the figures are those of "
    "the epoch that costs most."
)


@dataclass(frozen=True, eq=False)
class EpochReleases:
    """Releases of different epochs, oldest first, at least two. Raises ConfigurationError if they do not add up."""

    releases: tuple[Release, ...]
    forgetting: Fraction = Fraction(1)
    """The weight of an epoch relative to the next one."""

    def __post_init__(self) -> None:
        check_forgetting(self.forgetting)
        if len(self.releases) < 2:
            raise ConfigurationError("name at least two releases of epochs")
        two_classes(self.schema.label, "a sample of several epochs")
        epochs = [release.query.epoch for release in self.releases]
        for place, epoch in enumerate(epochs, start=1):
            if epoch is None:
                raise ConfigurationError(
                    f"release {place} is about all rows, which the other releases are about too: give releases of "
                    "single epochs (`rado learner query --epoch`), or this one alone"
                )
            if epochs.index(epoch) < place - 1:
                raise ConfigurationError(f"release {place} is about epoch {epoch} as another one is: give one of each")
        asked: dict[str, list[object]] = {
            "schema": [query.schema.digest for query in self.queries],
            "feature map": [query.feature_map for query in self.queries],
            "part of the rows": [query.held_back for query in self.queries],
            "kind": [(query.kind.name, query.kind.scope) for query in self.queries],
            "protected features": [tuple(query.kind.features(query.schema)) for query in self.queries],
            "protected column": [query.kind.protected_column for query in self.queries],
        }
        for what, values in asked.items():
            if any(value != values[0] for value in values):
                raise ConfigurationError(f"the releases differ in their {what}: ask each epoch alike")
        if self.forgetting != 1 and self.query.kind.learned_as != "moments":
            raise ConfigurationError("only moments can be weighted: leave --forgetting out, or ask moments")

    @property
    def queries(self) -> list[Query]:
        """The queries, oldest first."""
        return [release.query for release in self.releases]

    @property
    def query(self) -> Query:
        """The last query."""
        return self.releases[-1].query

    @property
    def schema(self) -> Schema:
        """That of all."""
        return self.query.schema

    @property
    def contents(self) -> str:
        """In words."""
        return f"{self.query.kind.contents} of {len(self.releases)} epochs"

    @property
    def cohort_rows(self) -> int:
        """The rows of all cohorts."""
        return sum(release.cohort_rows for release in self.releases)

    @property
    def rows(self) -> int:
        """The rows that the sample stands for."""
        return self.moments.rows if self.query.kind.learned_as == "moments" else self.sample.rows

    @property
    def bias(self) -> bool:
        """Whether the last coordinate is the constant feature."""
        return self.schema.bias

    @cached_property
    def moments(self) -> Moments:
        """The weighted sums. Raises ReleaseError if the releases have none."""
        return pooled_moments([release.moments for release in self.releases], self.forgetting)

    @cached_property
    def sample(self) -> RadoSample:
        """The rados of all rows. Raises ReleaseError if the releases have none."""
        return pooled_rados([_sample(release) for release in self.releases])

    @cached_property
    def statement(self) -> PrivacyStatement:
        """That of the composition of all of them, in the scope of each. Raises PlanError."""
        return composed_in_parallel(self.releases)


def composed_in_parallel(releases: Sequence[Release]) -> PrivacyStatement:
    """The statement of releases of one kind about different epochs. Raises PlanError."""
    last, kind = releases[-1], releases[-1].query.kind
    assumptions = (
        PARALLEL.format(epochs=len(releases)),
        FIXED_NOISE.format(count=f"{len(releases)} releases"),
        *dict.fromkeys(text for release in releases for text in release.statement.assumptions),
    )
    warnings = tuple(dict.fromkeys(text for release in releases for text in release.statement.warnings))
    said = replace(last.statement, assumptions=assumptions, warnings=warnings, releases=len(releases))
    if any(release.statement.epsilon is None for release in releases):
        return replace(
            said, scope="none", epsilon=None, delta=None, epsilon_if_others_collude=None, theorem_epsilon=None
        )
    names = kind.features(last.schema)
    cost = composed_privacy(
        releases,
        max(release.query.delta for release in releases),
        feature=names[0] if names else None,
        column=kind.protected_column if kind.scope == "joint" else None,
    )
    return replace(
        said,
        epsilon=cost.epsilon,
        delta=cost.delta,
        epsilon_if_others_collude=cost.epsilon_if_others_collude,
        theorem_epsilon=None,
    )


def _sample(release: Release) -> RadoSample:
    return RadoSample(release.rados, release.rows, bias=release.bias, distribution=release.distribution)
