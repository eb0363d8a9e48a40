"""The demo's second part: rados by DP-FEAT, which protect one boolean feature, and two estimators trained on them."""

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcore.errors import ConfigurationError, PlanError
from dpcore.records.schema import Schema
from radofed.demo.federation import Children, Clock, Note, RunningFederation, Shared, running_federation
from radofed.demo.options import DELTA, DemoOptions
from radofed.demo.tables import Baselines, baselines
from radofed.node_config import PolicyChoices

if TYPE_CHECKING:
    from dpcore.queries.statement import PrivacyStatement
    from learner.release import Release


ESTIMATORS = ("radoboost", "mean-variance")
ATTEMPTS = 2
ANSWER_WITHIN_S, PREPARE_WITHIN_S, UPLOAD_WITHIN_S = 120, 600, 600
DIGITS_EPSILON_PER_RADO = Fraction(4)
"""A truncation that is mild enough to cost nothing, and with which Theorem 6 gives a figure next to the exact one.

It is left out if the smallest party has too few rows for a finite epsilon with it."""


@dataclass(frozen=True)
class RadosPlan:
    """The query, decided before anything starts."""

    shared: Shared
    rados: int
    sensitive: str | None
    truncation: Fraction | None
    """None for none."""
    policy: PolicyChoices


@dataclass(frozen=True)
class RadosResult:
    """Results of the rados."""

    errors: dict[str, float]
    """Fractions of the held-out rows."""
    compared: Baselines
    rows: dict[str, int]
    release: dict[str, Any]
    """The output of `rado learner query`."""
    sensitive: str | None
    phases_s: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The fields of `rado demo --format json`."""
        statement = self.release["privacy"]
        figures = ("unit", "scope", "epsilon", "delta", "theorem_epsilon", "epsilon_if_others_collude")
        return {
            "test_error": {
                "radoboost": self.errors["radoboost"],
                "mean_variance": self.errors["mean-variance"],
                **self.compared.errors(),
            },
            "privacy": {name: statement[name] for name in figures},
            "privacy_in_words": _sentences(statement),
            "parties": len(self.rows),
            "rows_by_party": self.rows,
            "test_rows": self.compared.test_rows,
            "rados": self.release["rados"],
            "design": "plain" if self.sensitive is None else "dp-feat",
            "sensitive": self.sensitive,
            "upload_bytes_per_party": self.release["plan"]["upload_bytes_per_party"],
            "seconds": sum(self.phases_s.values()),
            "seconds_by_phase": self.phases_s,
        }

    def bound_in_words(self) -> list[str]:
        """The sentences with the statement's figures, without its assumptions and warnings."""
        statement = self.release["privacy"]
        sentences = _sentences(statement)
        return sentences[: len(sentences) - len(statement["assumptions"]) - len(statement["warnings"])]


def plan_rados(shared: Shared, options: DemoOptions, note: Note) -> RadosPlan:
    """Plan the query for these parties. Raises ConfigurationError if no query is possible."""
    fewest_rows = min(shared.rows.values())
    sensitive = _sensitive(options, shared.data.schema, note)
    truncation = truncation_for(options, fewest_rows, note)
    policy = _policy_of_rados(options, sensitive, truncation, fewest_rows)
    return RadosPlan(shared, options.rados, sensitive, truncation, policy)


def run_rados(plan: RadosPlan, directory: Path, clock: Clock, note: Note) -> RadosResult:
    """Query the rados in a federation of processes, and train on them. Raises ChildError if a node fails."""
    data = plan.shared.data
    with running_federation(directory, plan.shared, plan.policy, clock, note) as federation:
        with clock.phase("federated query"):
            release = _query(plan, federation, note)
        federation.children.stop()
        with clock.phase("training"):
            errors = _train_rados(Path(release["release"]), data.test, directory / "models", federation.children, note)
    with clock.phase("comparison"):
        note("training on the rows themselves, for comparison")
        compared = baselines(data)
    return RadosResult(errors, compared, plan.shared.rows, release, plan.sensitive, clock.phases_s)


def truncation_for(options: DemoOptions, fewest_rows: int, note: Note) -> Fraction | None:
    """Epsilon of each rado in Algorithm 2: the option's value; for the digits 4, or None if rows are too few."""
    from dpcore.accounting.dp_feat import own_epsilon  # noqa: PLC0415  (slow to import)

    if options.data is not None or options.epsilon_per_rado is not None:
        return options.epsilon_per_rado
    try:
        own_epsilon(fewest_rows, options.rados, DIGITS_EPSILON_PER_RADO, DELTA)
    except PlanError:
        note(f"the smallest party has only {fewest_rows} rows, so rado signatures are drawn without truncation")
        return None
    return DIGITS_EPSILON_PER_RADO


class _Until:
    """Passes lines on, up to and including the first that contains `last`."""

    def __init__(self, last: str, note: Callable[[str], None]) -> None:
        self._last, self._note, self._over = last, note, False

    def __call__(self, line: str) -> None:
        if not self._over:
            self._note(line)
        self._over = self._over or self._last in line


def _query(plan: RadosPlan, federation: RunningFederation, note: Note) -> dict[str, Any]:
    query = ["--rados", str(plan.rados), "--delta", str(DELTA), "--attempts", str(ATTEMPTS)]
    query += ["--answer-within-s", str(ANSWER_WITHIN_S), "--prepare-within-s", str(PREPARE_WITHIN_S)]
    query += ["--upload-within-s", str(UPLOAD_WITHIN_S), "--schema", str(plan.shared.schema)]
    query += ["--design", "plain" if plan.sensitive is None else "dp-feat"]
    query += [] if plan.sensitive is None else ["--sensitive", plan.sensitive]
    query += [] if plan.sensitive is None or plan.truncation is None else ["--epsilon-per-rado", str(plan.truncation)]
    return federation.children.run(
        "learner", "learner", "query", "--config", str(federation.config), *query, on_line=_Until(", complete,", note)
    )


def _sensitive(options: DemoOptions, schema: Schema, note: Note) -> str | None:
    name = options.sensitive or next(iter(schema.boolean_coordinates), None)
    if name is None and options.epsilon_per_rado is not None:
        raise ConfigurationError("the schema has no boolean or threshold feature: leave --epsilon-per-rado out")
    if name is None:
        note("the schema has no boolean or threshold feature that rados could protect: their design is plain")
    elif name not in schema.boolean_coordinates:
        choices = ", ".join(schema.boolean_coordinates) or "none"
        raise ConfigurationError(f"--sensitive {name}: choose a boolean or threshold feature of the schema: {choices}")
    return name


def _policy_of_rados(
    options: DemoOptions, sensitive: str | None, truncation: Fraction | None, fewest_rows: int
) -> PolicyChoices:
    """The policy of the demo's parties: it allows this query alone, at its cost to the smallest party."""
    from dpcore.accounting.dp_feat import own_epsilon  # noqa: PLC0415  (slow to import)
    from dpcore.accounting.filters import BASIC_SHARE  # noqa: PLC0415  (as above)

    if sensitive is None:
        own = _plain_epsilon(fewest_rows, options.rados)
    else:
        try:
            own = own_epsilon(fewest_rows, options.rados, truncation, DELTA)
        except PlanError as error:
            raise ConfigurationError(
                f"with {fewest_rows} rows at the smallest of {options.parties} parties: {error}; in the demo, lower "
                "--parties or --rados"
            ) from error
    return PolicyChoices(
        designs=("plain" if sensitive is None else "dp-feat",),
        allow_unprotected=True,
        smallest_cohort=min(3, options.parties),
        assumed_colluders=min(1, options.parties - 2),
        epsilon=str(math.ceil(ATTEMPTS * own)),
        # Basic composition, which is best for a few large epsilons, has half of a limit's delta.
        delta=f"{float(ATTEMPTS * DELTA / BASIC_SHARE):g}",
        unbounded_queries=ATTEMPTS,
        rados_per_query=options.rados,
        delta_per_query=f"{float(DELTA):g}",
        attempts_per_query=ATTEMPTS,
        reason=(
            "FOR A DEMONSTRATION ONLY. Rados of this design do not protect whole records. allow_unprotected is set "
            "because all\nrows are on this machine already. In a real federation leave it false, unless the data "
            "officer decides otherwise."
        ),
    )


def _plain_epsilon(fewest_rows: int, rados: int) -> float:
    """Largest epsilon of a boolean feature's own values, at the smallest party that is large enough for a bound."""
    from dpcore.accounting.protection import plain_loss  # noqa: PLC0415  (slow to import)

    for rows in itertools.count(fewest_rows):
        with suppress(PlanError):
            return float(plain_loss(rows, rados, DELTA).epsilon)
    raise AssertionError


def _train_rados(release: Path, test: Path, models: Path, children: Children, note: Note) -> dict[str, float]:
    from learner.model import Model  # noqa: PLC0415  (imports what the nodes need, not the demo)
    from learner.predictions import error_rate  # noqa: PLC0415  (imports what the nodes need, not the demo)

    models.mkdir()
    errors = {}
    for name in ESTIMATORS:
        note(f"training {name} on the rados")
        file = models / f"{name}.json"
        children.run(f"train-{name}", "learner", "train", str(release), "--estimator", name, "--output", str(file))
        errors[name] = error_rate(Model.load(file), test)
    return errors


def _sentences(statement: dict[str, Any]) -> list[str]:
    from dpcore.queries.statement import PrivacyStatement  # noqa: PLC0415  (slow to import)

    return PrivacyStatement.from_dict(statement).sentences()


# The demo's first part: whole records protected at epsilon 1, by `newton`, which queries the parties in 8 rounds.

ESTIMATOR, ROUNDS = "newton", 8
EPSILON = Fraction(1)
"""For all answers in total, against coordinator, learner and as many parties as the plan assumes to collude."""

LEAST_ROWS_PER_COORDINATE = 50
"""With fewer rows the noise in `newton`'s classifier outweighs what it learns.

Simulated on subsets of the synthetic patients' training rows, 18 coordinates, 4 parties, means of 8 draws: with
16,000, 4,000, 2,000, 1,000 and 500 rows its test error is 20.9, 21.2, 22.6, 26.0 and 32.1 %. That of pooled logistic
regression goes from 20.6 to 21.8 %; the majority class has 38.3 %.
"""

MOST_COORDINATES = 256
"""Moments grow with the square of the coordinates: with more, their encryption takes longer than the rados'."""


@dataclass(frozen=True)
class Asked:
    """The learner's queries."""

    rounds: int
    party_rows: dict[str, int]
    """Of the cohort, by name."""
    honest_parties: int
    """Number of parties whose noise the figure under collusion counts."""
    upload_bytes_per_party: int
    """Of all rounds."""
    attempts: int
    """Of all rounds."""

    @property
    def colluders(self) -> int:
        """Number of parties that may collude with coordinator and learner."""
        return len(self.party_rows) - self.honest_parties


@dataclass(frozen=True)
class WholeRecordsResult:
    """The results with whole records protected."""

    error: float
    compared: Baselines
    """Fractions of the held-out rows."""
    rows: dict[str, int]
    coordinates: int
    asked: Asked
    statement: "PrivacyStatement"
    warning: str | None
    phases_s: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The fields of `rado demo --format json`."""
        stated = self.statement
        return {
            "test_error": {ESTIMATOR: self.error, **self.compared.errors()},
            "test_rows": self.compared.test_rows,
            "parties": len(self.rows),
            "rows": sum(self.rows.values()),
            "rows_by_party": self.rows,
            "query": {
                "estimator": ESTIMATOR,
                "coordinates": self.coordinates,
                "rounds": self.asked.rounds,
                "attempts": self.asked.attempts,
                "epsilon": float(EPSILON),
                "delta": float(DELTA),
            },
            "privacy": {
                "unit": stated.unit,
                "scope": stated.scope,
                "epsilon": stated.epsilon,
                "delta": stated.delta,
                "epsilon_if_others_collude": stated.epsilon_if_others_collude,
                "colluding_parties": self.asked.colluders,
            },
            "privacy_in_words": stated.sentences(),
            "warning": self.warning,
            "upload_bytes_per_party": self.asked.upload_bytes_per_party,
            "seconds": sum(self.phases_s.values()),
            "seconds_by_phase": self.phases_s,
        }


def why_not(shared: Shared) -> str | None:
    """Why whole records are left out on this table; None if they are not."""
    rows, d = sum(shared.rows.values()), shared.data.schema.d
    least = LEAST_ROWS_PER_COORDINATE * d
    if rows < least:
        return (
            f"{rows} training rows of {d} coordinates are too few for {ESTIMATOR} at epsilon {EPSILON}; by our "
            f"measurements it needs about {LEAST_ROWS_PER_COORDINATE} for each coordinate, {least} here"
        )
    if d > MOST_COORDINATES:
        return f"{d} coordinates are too many for {ESTIMATOR} in a demo; give a schema of at most {MOST_COORDINATES}"
    return None


def run_whole_records(shared: Shared, directory: Path, clock: Clock, note: Note) -> WholeRecordsResult:
    """Train `newton` in a federation of processes. Raises ChildError if a node fails."""
    from dpcore.queries.statement import PrivacyStatement  # noqa: PLC0415  (slow to import)
    from learner.model import Model  # noqa: PLC0415  (imports what the nodes need, not the demo)
    from learner.predictions import error_rate  # noqa: PLC0415  (imports what the nodes need, not the demo)

    model = directory / f"{ESTIMATOR}.json"
    with running_federation(directory, shared, _policy(len(shared.rows)), clock, note) as federation:
        with clock.phase("federated training"):
            trained = _train(federation, shared.schema, model, note)
        asked = _asked(federation.config)
    with clock.phase("comparison"):
        note("training on the rows themselves, for comparison")
        error = error_rate(Model.load(model), shared.data.test)
        compared = baselines(shared.data)
    return WholeRecordsResult(
        error=error,
        compared=compared,
        rows=shared.rows,
        coordinates=shared.data.schema.d,
        asked=asked,
        statement=PrivacyStatement.from_dict(trained["privacy"]),
        warning=trained["warning"],
        phases_s=clock.phases_s,
    )


def _policy(parties: int) -> PolicyChoices:
    """The policy of the demo's parties: it allows one training, with a few repeated rounds, and protects whole records.

    In the ledger a training of eight rounds takes epsilon 1.031 of a limit with delta 1e-5 (docs/asking.md, 4).
    """
    return PolicyChoices(
        designs=("moments", "gradient"),
        smallest_cohort=min(3, parties),
        assumed_colluders=min(1, parties - 2),
        epsilon="1.25",
        delta="1e-5",
        delta_per_query=f"{float(DELTA):g}",
        reason="One training by newton in eight rounds at epsilon 1, with a few rounds that must be repeated.",
    )


def _train(federation: RunningFederation, schema: Path, model: Path, note: Note) -> dict[str, Any]:
    def note_round(line: str) -> None:
        # One line for each round; the other lines are for a terminal.
        if line.startswith("round "):
            note(line)

    options = ["--estimator", ESTIMATOR, "--rounds", str(ROUNDS), "--epsilon", str(EPSILON), "--delta", str(DELTA)]
    options += ["--config", str(federation.config), "--schema", str(schema), "--output", str(model)]
    return federation.children.run("learner", "learner", "train", *options, on_line=note_round)


def _asked(config: Path) -> Asked:
    """Read the learner's saved releases."""
    from learner.config import LearnerConfig  # noqa: PLC0415  (imports what the nodes need, not the demo)
    from learner.release import Release  # noqa: PLC0415  (as above)

    releases = [Release.load(place) for place in sorted(LearnerConfig.load(config).releases_directory.iterdir())]
    return Asked(
        rounds=len(releases),
        # A round that lacks a party has fewer shares of noise, so fewer parties may collude.
        party_rows=min((release.party_rows for release in releases), key=len),
        honest_parties=max(release.query.honest_of(len(release.party_rows)) for release in releases),
        upload_bytes_per_party=sum(map(_upload_bytes, releases)),
        attempts=sum(release.cohort.attempt for release in releases),
    )


def _upload_bytes(release: "Release") -> int:
    from dpcore.paillier.packing import ciphertext_count  # noqa: PLC0415  (slow to import)
    from wire.query import PaillierKey  # noqa: PLC0415  (as above)

    query = release.query
    key = PaillierKey.from_bytes(query.paillier_key.payload).public_key
    return ciphertext_count(query.length, query.encoding, key.bits) * key.ciphertext_bytes
