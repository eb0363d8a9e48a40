"""Several labels over real processes: a query names one, and a party whose schema has that one alone takes part."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import radofed
from dpcore.records.shared_schema import SharedSchema
from learner.config import LearnerConfig
from learner.model import Model
from learner.requests import MomentsRequest
from learner.session import Session
from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until

pytestmark = pytest.mark.more

START = 'schema_version = 5\nname = "stays"\ntexts = []\n'
FEATURES = """
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
"""
DEATH = '[[labels]]\nname = "death"\ncolumn = "died"\npositive = ["yes"]\nmissing = "zero-vector"\n'
DAYS = '[[labels]]\ntype = "number"\ncolumn = "days"\nlower = 0.0\nupper = 40.0\nmissing = "zero-vector"\n'
BOTH = START + DEATH + DAYS + FEATURES
ONLY_DEATH = START + DEATH.replace("[[labels]]", "[label]").replace('name = "death"\n', "") + FEATURES
ROWS = {"a": 400, "b": 500, "c": 300, "d": 350}
ALLOWING = PolicyChoices(designs=("moments", "gradient", "statistic"), smallest_cohort=3, epsilon="400", delta="1e-3")


def table(rows: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    lines = ["age,died,days"]
    for number in range(rows):
        age = random.uniform(20, 95)
        died = "yes" if random.random() < age / 120 else "no"
        days = f"{np.clip(age / 4 + random.normal(0, 1), 0, 40):.2f}"
        lines.append(f"{age:.2f},{'' if number % 5 == 0 else died},{'' if number % 4 == 0 else days}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("labels")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=BOTH, policy=ALLOWING, rows_at_least=ROWS) as federation:
        # One party has no days, another writes its labels in another order.
        (federation.directory("c") / "schema.toml").write_text(ONLY_DEATH)
        (federation.directory("d") / "schema.toml").write_text(START + DAYS + DEATH + FEATURES)
        federation.serve()
        yield federation


def test_a_query_that_names_no_label_is_refused_before_anything_is_sent(federation):
    for command in (("statistic", "y == 1"), ("describe",), ("histogram", "age")):
        asked = rado("learner", *command, *federation.asking, "--epsilon", "5", code=4)
        assert "has 2 labels, 'death', 'days': name one" in asked["error"]["message"]
    assert federation.queries() == 0


def test_each_label_is_counted_over_the_rows_that_have_it(federation):
    asked = rado("learner", "statistic", "y == 1", "true", *federation.asking, "--label", "death", "--epsilon", "20")[
        "data"
    ]
    assert asked["rows"] == sum(ROWS.values())
    assert asked["estimates"][1]["estimate"] == pytest.approx(0.8, abs=0.02)
    found = rado("learner", "statistic", "true", *federation.asking, "--label", "days", "--epsilon", "20")["data"]
    assert found["estimates"][0]["estimate"] == pytest.approx(0.75, abs=0.02)
    # The party that has no days refused, and the others made a cohort.
    assert found["rows"] == sum(ROWS.values()) - ROWS["c"]


def test_models_carry_the_label_that_they_are_about(federation):
    shared, made = SharedSchema.from_toml(BOTH), {}
    for name in shared.labels:
        to = federation.root / f"{name}.json"
        rado("learner", "train", "--estimator", "newton", *federation.asking, "--label", name,
             "--epsilon", "40", "--rounds", "3", "-o", str(to))  # fmt: skip
        made[name] = Model.load(to)
        assert made[name].schema == shared.about(name)
    assert made["days"].values(made["days"].scores(np.array([[0.9, 1.0]])))[0] > 15
    evaluated = rado("learner", "evaluate", str(federation.root / "death.json"), "--config",
                     str(federation.learner.config), "--epsilon", "20")["data"]  # fmt: skip
    assert evaluated["rows"] == sum(ROWS.values())


def test_python_names_a_label(federation):
    with radofed.connect(
        federation.learner.config, schema=federation.root / "schema.toml", label="days", progress=False
    ) as days:
        assert days.schema.label.column == "days"
        assert days.statistic(["y >= 10"], epsilon=20).values[0] > 0.3


def test_a_party_says_what_each_label_makes_of_its_rows(federation):
    config = str(federation.member("a").config)
    status = rado("party", "status", "--config", config)["data"]
    assert status["usable_by_label"] == {"death": 320, "days": 300}
    found = rado("party", "check", "--config", config, "--against", str(Path(federation.root, "schema.toml")))["data"]
    checks = {each["name"]: each for each in found["findings"]}
    assert found["ok"]
    assert "labels 'death', 'days'" in checks["schema"]["detail"]
    assert checks["schema-against"]["status"] == "ok"
    assert checks["held-data"]["detail"].endswith("those of the files")


def warnings(federation) -> tuple[str, ...]:
    """Of a plan about the days of a stay."""
    request = MomentsRequest(SharedSchema.from_toml(BOTH).about("days"), epsilon=Fraction(1))
    with Session(LearnerConfig.load(federation.learner.config)) as session:
        return session.plan(request).warnings


def test_a_label_that_too_few_parties_have_is_refused_before_anything_is_sent_until_they_have_it(federation):
    """The party stated which schemas it answers about, by digests, and states it again after a reload."""
    before = federation.queries()
    asked = ("learner", "statistic", "true", *federation.asking, "--label", "days", "--epsilon", "20")
    refused = rado(*asked, "--cohort-min", "4", code=6)["error"]
    assert refused["code"] == "SCHEMA_MISMATCH"
    assert "A cohort needs 4 parties, and c has no such label of column 'days'. Nothing was sent." in refused["message"]
    assert federation.queries() == before
    assert "c has no such label of column 'days' and will refuse" in " ".join(warnings(federation))
    (federation.directory("c") / "schema.toml").write_text(BOTH)
    rado("party", "reload", "--config", str(federation.member("c").config))
    wait_until(lambda: not warnings(federation), what="c's next statement")
    assert rado(*asked, "--cohort-min", "4")["data"]["rows"] == sum(ROWS.values())
