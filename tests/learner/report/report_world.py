"""Releases and models of a federation in memory: real queries, sums, signatures and files, without encryption."""

import time
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.queries.statement import statement_for
from dpcore.records.encoding import store
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.federation import Federation
from learner.model import Model
from learner.release import Release, possible_attempts
from learner.report.gathering import Report, Sources, gather
from learner.requests import Request
from learner.training import model_of_answers
from radofed import __version__
from tests.federation.learner import Memory, World
from wire.envelopes import MessageType
from wire.query import open_query, setting_of

HTML = "<script>alert('ward')</script>"
BACKWARDS = "left\u202etfel"
SCHEMA = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        CategoryFeature(name="ward", values=("east", HTML, BACKWARDS)),
    ),
)
ROWS = {"ada": 4000, "bo": 3000, "cy": 5000}
EPSILON, DELTA = Fraction(2), Fraction(1, 10**6)


class Releasing(Memory):
    """Answers that are releases, as a session saves them."""

    def answer(self, plan):
        made = super().answer(plan)
        envelope = self.world.learner_key.sign(MessageType.QUERY, plan.query.to_bytes())
        opened = open_query(envelope, self.world.roster, now_unix_s=time.time())
        total = self.world.total(opened, made.party_rows)
        statement = statement_for(
            plan.query.kind,
            tuple(made.party_rows.values()),
            plan.query.delta,
            schema=plan.query.schema,
            setting=setting_of(plan.query),
            attempts=possible_attempts(plan.query, 1),
        )
        return Release(
            query_envelope=envelope,
            roster_envelope=self.world.roster_envelope,
            cohort=total.cohort,
            receipts=total.receipts,
            statement=statement,
            created_at_unix_s=int(time.time()),
            integers=made.integers.reshape(plan.query.kind.shape(plan.query.schema.d)),
        )


def stays(rows: int, seed: int) -> Records:
    """Records of SCHEMA. The old stay, and smokers; the last ward lets people go."""
    random = np.random.default_rng(seed)
    age, smoker, ward = random.uniform(-1, 1, rows), random.choice([-1.0, 1.0], rows), random.integers(0, 3, rows)
    score = 2 * age + 0.5 * smoker - (ward == 2)
    labels = np.where(random.random(rows) < 1 / (1 + np.exp(-score)), 1, -1).astype(np.int8)
    x = np.column_stack([age, smoker, np.eye(3)[ward], np.ones(rows)])
    return Records(store(x), labels, np.ones(rows, dtype=bool))


def table(rows: int, seed: int) -> str:
    """The same as a CSV file."""
    records = stays(rows, seed)
    x = records.features * 2.0**-30
    wards = ["east", HTML, BACKWARDS]
    yes = {True: "yes", False: "no"}
    lines = [
        f'{50 + 50 * row[0]:.3f},{yes[row[1] > 0]},"{wards[int(np.argmax(row[2:5]))]}",{yes[label > 0]}'
        for row, label in zip(x, records.labels, strict=True)
    ]
    return "\n".join(["age,smoker,ward,stayed", *lines]) + "\n"


class Reported:
    """Models and releases on disk. moments: a model of one release; newton: of three answers."""

    def __init__(self, root: Path, learner_key) -> None:
        self.root = root
        world = World(learner_key, dict(ROWS))
        memory = Releasing(world, {name: stays(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())})
        self.world, self.memory, self.federation = world, memory, Federation(memory, SCHEMA)
        self.model, self.releases = self.trained(MomentsDiscriminant(), "moments-discriminant")
        self.newton, self.answers = self.trained(PrivateNewton(rounds=3), "newton")

    def trained(self, estimator, name: str) -> tuple[Path, list[Path]]:
        oracle = self.federation.within(EPSILON, DELTA)
        if hasattr(estimator, "fit_queries"):
            estimator.fit_queries(oracle)
        else:
            estimator.fit_moments(oracle.moments())
        path = self.root / f"{name}.json"
        model_of_answers(estimator, oracle, name).save(path)
        places = [self.root / f"{name}-{number}" for number in range(len(oracle.answers))]
        for place, answer in zip(places, oracle.answers, strict=True):
            answer.save(place)
        return path, places

    def asked(self, request: Request) -> Release:
        """The release of one request."""
        return self.memory.answer(self.memory.plan(request))

    def report(self, subject: Path, **sources) -> Report:
        return gather(Sources(subject, **sources), time.time(), __version__)

    def loaded(self) -> Model:
        return Model.load(self.model)
