"""The demo's first part: whole records protected at epsilon 1, by `newton`, which queries the parties in 8 rounds."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radofed.demo.federation import Clock, Note, RunningFederation, Shared, running_federation
from radofed.demo.options import DELTA
from radofed.demo.tables import Baselines, baselines
from radofed.templates import PolicyChoices

if TYPE_CHECKING:
    from dpcore.queries.statement import PrivacyStatement
    from learner.release import Release

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
    from learner.model import Model, error_rate  # noqa: PLC0415  (imports what the nodes need, not the demo)

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
        honest_parties=max(release.query.honest_parties for release in releases),
        upload_bytes_per_party=sum(map(_upload_bytes, releases)),
        attempts=sum(release.cohort.attempt for release in releases),
    )


def _upload_bytes(release: "Release") -> int:
    from dpcore.paillier.packing import ciphertext_count  # noqa: PLC0415  (slow to import)
    from wire.query import PaillierKey  # noqa: PLC0415  (as above)

    query = release.query
    key = PaillierKey.from_bytes(query.paillier_key.payload).public_key
    return ciphertext_count(query.length, query.encoding, key.bits) * key.ciphertext_bytes
