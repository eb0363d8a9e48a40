"""The composition of several releases: exact privacy figures, in words, and curves of epsilon."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.accounting import words
from dpcore.accounting.protection import ReleaseCost
from dpcore.errors import ConfigurationError, PlanError
from dpcore.queries.kind import QueryKind
from dpcore.queries.statement import CountedRelease, PrivacyStatement, composed_cost
from learner.release import Release
from wire.query import Query, setting_of

if TYPE_CHECKING:
    from learner.answer_source import Answer


ASSUMED = (
    "Assumed: {releases} all that the learner opened of these records; later queries, and the number of attempts, did "
    "not depend on earlier answers (a party's ledger does not assume that, and charges more); and what each release's "
    "own statement assumes."
)

BY_IDS = (
    "Assumed too: at every party ids decide which rows are held back (id_column), and every row has kept its id over "
    "all releases. So a record is in one part of the rows. Ask the parties: nothing in a release shows it."
)

COUNTED = (
    "The figure for the learner alone counts the totals that it opened. The figure under collusion counts every "
    "attempt that may have a total{attempts}: coordinator, learner and the members of a cohort that did not upload can "
    "complete the total of a lost attempt. Not counted: queries of other learners, and queries of this one that are "
    "not named here."
)

FIXED_NOISE = (
    "The figures are those of the composition of {count}. The ratio of each release's noise to its sensitivity was "
    "fixed beforehand; queries may depend on earlier answers (adaptive composition of Gaussian, and of pure, "
    "mechanisms). Other queries of this learner are not counted."
)

ALL_ATTEMPTS = (
    "The figure under collusion also counts {lost}: coordinator, learner and the members of a cohort that did not "
    "upload can complete such a total. Which attempts were lost is taken not to depend on the answers."
)

WHOLE_BUDGET = (
    "The run ended before it used its whole budget, and may have done so because of earlier answers: an estimator may "
    "stop by them, and a party may refuse predicates or a feature map that were chosen by them. So the figures are "
    "those of the whole budget."
)


@dataclass(frozen=True, eq=False)
class Unanswered:
    """A query that ended, or was left, without a total."""

    query: Query
    attempts: int
    """Those that may have one."""

    def counted(self, party_rows: Mapping[str, int]) -> CountedRelease:
        """For composition; its cohort is not known: it may be any of these parties."""
        query = self.query
        return CountedRelease(
            query.kind,
            party_rows,
            query.schema,
            setting_of(query),
            attempts=self.attempts,
            is_opened=False,
            epoch=query.epoch,
        )


def composed_privacy(
    releases: Sequence[Release],
    delta: Fraction,
    *,
    feature: str | None = None,
    column: str | None = None,
    by_ids: bool = False,
) -> ReleaseCost:
    """The cost of the composition of these releases, for records, or a source column, or the marginal of one feature.

    Under collusion, every attempt of each query counts that may have a total (`learner.release.Release.attempts`).
    Parties are distinguished by name. by_ids: assume `BY_IDS`, so that held-back and training rows are disjoint.

    Raises ConfigurationError if a release is given twice, PlanError as `composed_cost` does.
    """
    if len({release.query_id for release in releases}) < len(releases):
        raise ConfigurationError("a release is given twice; give each release once")
    return composed_cost(list(map(counted, releases)), delta, feature=feature, column=column, by_ids=by_ids)


def cost_of(
    answers: Sequence["Answer"],
    delta: Fraction,
    *,
    unanswered: Sequence[Unanswered] = (),
    unspent: Sequence[CountedRelease] = (),
) -> ReleaseCost:
    """The cost for records of all queries within one budget; those of `unspent` count as if they had been answered.

    Raises PlanError.
    """
    rows = rows_of(answers, unanswered)
    lost = [query.counted(rows) for query in unanswered]
    return composed_cost([*map(counted, answers), *lost, *unspent], delta)


def composed_statement(
    answers: Sequence["Answer"],
    delta: Fraction,
    *,
    unanswered: Sequence[Unanswered] = (),
    unspent: Sequence[CountedRelease] = (),
) -> PrivacyStatement:
    """The statement of all queries within one budget, for records; see `cost_of`.

    A single answer keeps its own statement. Raises ConfigurationError if there is no answer, PlanError.
    """
    if not answers:
        raise ConfigurationError("nothing was answered, so there is nothing to state")
    if len(answers) == 1 and not unanswered and not unspent:
        return answers[0].statement
    cost = cost_of(answers, delta, unanswered=unanswered, unspent=unspent)
    lost = sum(answer.attempts - 1 for answer in answers) + sum(query.attempts for query in unanswered)
    return replace(
        answers[-1].statement,
        epsilon=cost.epsilon,
        delta=cost.delta,
        epsilon_if_others_collude=cost.epsilon_if_others_collude,
        releases=len(answers),
        assumptions=(
            FIXED_NOISE.format(count=f"{len(answers)} release{'s' * (len(answers) > 1)}"),
            *([ALL_ATTEMPTS.format(lost=f"{lost} attempt{'s' * (lost > 1)} without an opened total")] if lost else []),
            *([WHOLE_BUDGET] if unspent else []),
            *dict.fromkeys(text for answer in answers for text in answer.statement.assumptions),
        ),
        warnings=tuple(dict.fromkeys(text for answer in answers for text in answer.statement.warnings)),
    )


def counted(answer: "Answer") -> CountedRelease:
    """An answer for composition."""
    query = answer.query
    return CountedRelease(
        query.kind,
        answer.party_rows,
        query.schema,
        setting_of(query),
        attempts=answer.attempts,
        part=query.held_back,
        epoch=query.epoch,
    )


def rows_of(answers: Sequence["Answer"], unanswered: Sequence[Unanswered]) -> dict[str, int]:
    """The rows of all parties that answered; without an answer, of the smallest cohort that a query allows.

    Queries for records, the only ones within a budget, cost the same for any rows.
    """
    known = {party: rows for answer in answers for party, rows in answer.party_rows.items()}
    smallest = min((query.query.cohort_min for query in unanswered), default=0)
    return known or {str(place): 1 for place in range(smallest)}


def sentences(cost: ReleaseCost, releases: Sequence[Release], what: str, *, by_ids: bool = False) -> list[str]:
    """The figures of these releases in words. what: the unit of privacy, such as "one record"."""
    several = len(releases) > 1
    attempts = sum(release.attempts for release in releases)
    who = f"the composition of the {len(releases)} releases is" if several else "the release is"
    others = f"Under the collusion that {'their statements assume' if several else 'its statement assumes'}"
    return [
        *words.definition(cost.epsilon, cost.epsilon_if_others_collude, cost.delta, who, what, others),
        COUNTED.format(attempts=f", {attempts} in all" if attempts > len(releases) else ""),
        ASSUMED.format(releases="the releases are" if several else "the release is"),
        *([BY_IDS] if by_ids else []),
    ]


# Epsilon against what was asked: more answers like these, and more members that collude.


_REPEATS = 8
_MOST_POINTS = 24


@dataclass(frozen=True)
class Point:
    """Epsilon at a number of answers, or of parties that collude. alone: None if the curve is about collusion only."""

    at: int
    alone: float | None
    colluding: float


@dataclass(frozen=True)
class EpsilonCurve:
    """Epsilon, at the statement's delta, against one thing that was asked."""

    id: str
    title: str
    axis: str
    """What the number counts."""
    note: str
    """A sentence on what the curve takes as given."""
    points: tuple[Point, ...]
    marked: Point
    """This release or model. Its figures are the statement's, which may count more, such as lost attempts."""

    @property
    def has_alone(self) -> bool:
        """Whether the curve has a line for the learner alone."""
        return all(point.alone is not None for point in self.points)


def curves(releases: Sequence[Release], statement: PrivacyStatement) -> tuple[EpsilonCurve, ...]:
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
) -> EpsilonCurve | None:
    """Epsilon after each answer of a model; for one release, if the same were asked again."""
    several = len(releases) > 1
    asked = list(map(counted, releases)) if several else [counted(releases[0])] * _REPEATS
    stride = -(-len(asked) // _MOST_POINTS)
    numbers = sorted({*range(1, len(asked) + 1, stride), len(asked)})
    costs = [(number, cost(asked[:number])) for number in numbers]
    points = tuple(Point(number, each.epsilon, each.epsilon_if_others_collude) for number, each in costs if each)
    if len(points) < 2:
        return None
    return EpsilonCurve(
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
) -> EpsilonCurve | None:
    """Epsilon by the number of parties that collude; None if it does not depend on them or answers differ in it."""
    parties = min(len(release.party_rows) for release in releases)
    stated = {release.query.honest_of(parties) for release in releases}
    if len(stated) != 1 or len({len(release.party_rows) for release in releases}) != 1:
        return None
    (honest,) = stated
    points = []
    for colluding in range(parties):
        asked = [
            replace(
                each,
                kind=_of_known_cohort(each.kind, parties),
                setting=replace(each.setting, honest_parties=parties - colluding),
            )
            for each in map(counted, releases)
        ]
        found = cost(asked)
        if found is not None:
            points.append(Point(colluding, None, found.epsilon_if_others_collude))
    if len({point.colluding for point in points}) < 2:
        return None
    marked = _marked(parties - honest, statement)
    return EpsilonCurve(
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


def _of_known_cohort(kind: QueryKind, parties: int) -> QueryKind:
    """The kind, with all figures those of the noise in a cohort of so many parties."""
    return kind if kind.cohorts is None else kind.following(replace(kind.cohorts, answered=parties))


def _marked(at: int, statement: PrivacyStatement) -> Point:
    assert statement.epsilon_if_others_collude is not None, "nothing is drawn without a bound"
    return Point(at, statement.epsilon, statement.epsilon_if_others_collude)
