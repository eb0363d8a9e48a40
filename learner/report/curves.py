"""Epsilon against what was asked: more answers like these, and more members that collude."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dpcore.accounting.protection import ReleaseCost
from dpcore.errors import PlanError
from dpcore.queries.statement import CountedRelease, PrivacyStatement, composed_cost
from learner.composition import counted
from learner.release import Release

_REPEATS = 8
_MOST_POINTS = 24


@dataclass(frozen=True)
class Point:
    """Epsilon at a number of answers, or of parties that collude. alone: None if the curve is about collusion only."""

    at: int
    alone: float | None
    colluding: float


@dataclass(frozen=True)
class Curve:
    """Epsilon, at the statement's delta, against one thing that was asked.

    axis: what the number counts. note: a sentence on what the curve takes as given. marked: the number of this release
    or model; its figures are the statement's, which may count more than the curve does, such as lost attempts.
    """

    id: str
    title: str
    axis: str
    note: str
    points: tuple[Point, ...]
    marked: Point

    @property
    def has_alone(self) -> bool:
        """Whether the curve has a line for the learner alone."""
        return all(point.alone is not None for point in self.points)


def curves(releases: Sequence[Release], statement: PrivacyStatement) -> tuple[Curve, ...]:
    """The curves of a release, or of all releases of a model. None for a release that bounds nothing."""
    if not releases or statement.epsilon is None or statement.epsilon_if_others_collude is None:
        return ()
    cost = _cost(releases, statement)
    made = (_answers(releases, statement, cost), _colluders(releases, statement, cost))
    return tuple(curve for curve in made if curve is not None)


def _cost(
    releases: Sequence[Release], statement: PrivacyStatement
) -> Callable[[Sequence[CountedRelease]], ReleaseCost | None]:
    """The cost of the composition of releases, in the statement's scope; None if there is no bound."""
    kind, schema = releases[0].query.kind, releases[0].schema
    feature = next(iter(kind.features(schema)), None) if statement.scope == "marginal" else None
    column = kind.protected_column if statement.scope == "joint" else None

    def cost(asked: Sequence[CountedRelease]) -> ReleaseCost | None:
        try:
            return composed_cost(asked, statement.delta or 0.0, feature=feature, column=column)
        except PlanError:
            return None

    return cost


def _answers(
    releases: Sequence[Release],
    statement: PrivacyStatement,
    cost: Callable[[Sequence[CountedRelease]], ReleaseCost | None],
) -> Curve | None:
    """Epsilon after each answer of a model; for one release, if the same were asked again."""
    several = len(releases) > 1
    asked = list(map(counted, releases)) if several else [counted(releases[0])] * _REPEATS
    stride = -(-len(asked) // _MOST_POINTS)
    numbers = sorted({*range(1, len(asked) + 1, stride), len(asked)})
    costs = [(number, cost(asked[:number])) for number in numbers]
    points = tuple(Point(number, each.epsilon, each.epsilon_if_others_collude) for number, each in costs if each)
    if len(points) < 2:
        return None
    return Curve(
        id="answers",
        title="Epsilon after each answer" if several else "Epsilon if the same were asked again",
        axis="answers" if several else "answers like this one",
        note=(
            "Each further answer to a question that costs the same adds to epsilon."
            if not several
            else "The answers in the order in which they were asked."
        ),
        points=points,
        marked=_marked(len(releases), statement),
    )


def _colluders(
    releases: Sequence[Release],
    statement: PrivacyStatement,
    cost: Callable[[Sequence[CountedRelease]], ReleaseCost | None],
) -> Curve | None:
    """Epsilon by the number of parties that collude; None if it does not depend on them or answers differ in it."""
    parties = min(len(release.party_rows) for release in releases)
    stated = {release.query.honest_parties for release in releases}
    if len(stated) != 1 or len({len(release.party_rows) for release in releases}) != 1:
        return None
    (honest,) = stated
    points = []
    for colluding in range(parties):
        asked = [
            replace(each, setting=replace(each.setting, honest_parties=parties - colluding))
            for each in map(counted, releases)
        ]
        found = cost(asked)
        if found is not None:
            points.append(Point(colluding, None, found.epsilon_if_others_collude))
    if len({point.colluding for point in points}) < 2:
        return None
    marked = _marked(parties - honest, statement)
    return Curve(
        id="colluders",
        title="Epsilon by the number of parties that collude",
        axis="parties that work with coordinator and learner",
        note=(
            f"{parties} parties answered. The noise of those that collude does not protect the others. The query "
            f"counts the noise of {honest}, so its figure holds for up to {parties - honest} that collude."
        ),
        points=tuple(points),
        marked=Point(marked.at, None, marked.colluding),
    )


def _marked(at: int, statement: PrivacyStatement) -> Point:
    assert statement.epsilon_if_others_collude is not None, "nothing is drawn without a bound"
    return Point(at, statement.epsilon, statement.epsilon_if_others_collude)
