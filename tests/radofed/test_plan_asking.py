"""`rado plan` of what estimators ask, of statistics, and over a schema: the figures are those of real queries."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.predicates.notation import parse
from dpcore.records.features import Classes
from learner.estimators import BY_QUERIES, EVENT_TIMES, FROM_RELEASES, make_estimator
from learner.planned_questions import made_up_records
from learner.requests import release_request
from radofed import simulated_federation
from radofed.cli.entry_point import run
from radofed.demo.tables import schema, table
from radofed.planning.asked_cost import ask_cost
from radofed.planning.asked_queries import AskRequest, PlannedParties
from radofed.planning.design_cost import PlanRequest
from radofed.planning.designs import plan_cost
from radofed.planning.made_up import made_up_schema
from radofed.planning.signal import measured
from radofed.simulation.oracles import SimulatedSource
from tests.federation.learner import World
from wire.request_fields import ReleaseFields

PATIENTS = schema()
ROWS = (2000,) * 4
OPTIONS = {
    "point": {"feature": "diagnosis"},
    "threshold": {"feature": "age", "require_rows": False},
    "kearns-list": {"require_rows": False},
}


@pytest.fixture(scope="module")
def patients_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("plan") / "patients.csv"
    table().write(np.arange(sum(ROWS)), file)
    return file


@pytest.fixture
def patients_toml(tmp_path):
    file = tmp_path / "patients.toml"
    file.write_text(PATIENTS.to_toml())
    return str(file)


def request(estimator=None, **changes):
    options = OPTIONS.get(estimator, {})
    fields = {
        "party_rows": ROWS,
        "schema": PATIENTS,
        "epsilon": Fraction(1),
        "estimator": estimator,
        "options": options,
    }
    return AskRequest(**{**fields, **changes})


def data(capsys, *arguments):
    code = run(["plan", *arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["status"]) == (0 if found["data"]["feasible"] else 1, "ok")
    return found["data"]


class Watched(SimulatedSource):
    """A source that keeps its plans."""

    def plan(self, wanted):
        self.plans = [*getattr(self, "plans", ()), super().plan(wanted)]
        return self.plans[-1]


@pytest.mark.more
def test_a_plan_says_what_adaptive_questions_keep(capsys, patients_toml):
    asked = ("--statistic", "y == 1", "--schema", patients_toml, "--party-rows", "9000,9000,9000", "--epsilon", "1")
    fixed, adaptive = data(capsys, *asked), data(capsys, *asked, "--adaptive", "5")
    assert adaptive["tolerance"] > fixed["tolerance"]
    many = ask_cost(request(predicates=("y == 1",), adaptive=5000))
    assert not many.feasible
    assert "too few for 5000 adaptive questions" in many.reason
    sentences = ask_cost(request(predicates=("y == 1",), adaptive=5)).sentences()
    assert any("each of which earlier answers may have chosen" in sentence for sentence in sentences)


@pytest.mark.parametrize("estimator", [name for name in BY_QUERIES if name not in EVENT_TIMES])
def test_a_plan_is_what_the_estimator_then_asks_and_costs(patients_file, estimator):
    # The key's size is that of a simulation.
    cost = ask_cost(request(estimator, key_bits=2048))
    assert cost.feasible
    federation = simulated_federation(patients_file, schema=PATIENTS, parties=4, seed=7)
    federation.source.__class__ = Watched
    oracle = federation.within(Fraction(1), Fraction(1, 10**6))
    make_estimator(estimator, **OPTIONS.get(estimator, {})).fit_queries(oracle)
    said, plans = oracle.statement(), federation.source.plans
    if estimator in ("decision-list", "kearns-list"):
        # It ends when chance explains the rest: the budget counts as a whole, in one part more or less.
        assert len(plans) <= cost.at_most == make_estimator(estimator).get_params().get("max_rules", 4)
        assert cost.statement.epsilon == pytest.approx(said.epsilon, rel=0.01)
        plans = plans[:1]
    else:
        assert cost.at_most == len(cost.answers) == len(plans)
        # The noise of a gradient is in whole units of its clipping norm, which follows from the moments.
        assert cost.statement.epsilon == pytest.approx(said.epsilon, rel=1e-5)
        assert cost.statement.epsilon_if_others_collude == pytest.approx(said.epsilon_if_others_collude, rel=1e-5)
        assert cost.statement.assumptions == said.assumptions
    assert cost.statement.epsilon_if_others_collude <= 1
    for answer, plan in zip(cost.answers, plans, strict=False):
        if estimator == "additive":
            # Its terms follow the histograms, and made-up rows have others.
            assert answer.kind == plan.query.kind.name
            assert answer.values == pytest.approx(plan.query.length, rel=0.2)
            continue
        signal, noise_sd = measured(plan, sum(ROWS), 4)
        assert (answer.kind, answer.values) == (plan.query.kind.name, plan.query.length)
        assert answer.noise_over_sampling == pytest.approx(signal.noise_over_sampling, rel=1e-4)
        if answer.kind != "gradient":
            assert answer.noise_sd == noise_sd
            assert answer.ciphertexts == plan.ciphertexts


@pytest.mark.more
def test_a_plan_counts_the_choice_of_pairs_where_the_run_makes_it():
    def planned(rows, **options):
        asked = request("additive", schema=made_up_schema(21), party_rows=(rows,) * 4, options=options)
        return ask_cost(asked)

    chosen, without = planned(8000), planned(1000)
    assert [answer.kind for answer in chosen.answers] == ["statistic"] * 2 + ["moments"] + ["gradient"] * 7
    assert [answer.kind for answer in without.answers] == ["statistic", "moments"] + ["gradient"] * 8
    assert chosen.answers[1].values == 20**2 + 20 + 1
    # Both are batches with one part of the budget: the noise grows with the roots of the sensitivity and of the part.
    ratio = chosen.answers[1].noise_sd / chosen.answers[0].noise_sd
    assert ratio == pytest.approx((220 / 0.05) ** 0.5 / (40 / 0.03) ** 0.5, rel=1e-3)
    for cost in (chosen, without):
        assert cost.at_most == 10
        assert 0.9999 < cost.statement.epsilon_if_others_collude <= 1


@pytest.mark.more
def test_a_plan_says_what_sizes_make_an_estimator_leave_out(capsys, monkeypatch, patients_toml):
    asked = ("--estimator", "additive", "--coordinates", "6", "--epsilon", "1", "--parties", "5", "--rows")

    def notes(rows, *more):
        return data(capsys, *asked, str(rows), *more)["notes"]

    (straight,) = notes(300)
    assert straight.startswith("the model is straight: for curves with 26 terms, epsilon 1 is too little for 300 rows")
    assert "there would be curves from 792 rows on" in straight
    (without,) = notes(792)
    assert "the model has no products: with those of 10 pairs it would have 41 terms" in without
    assert notes(3000) == notes(792, "--option", "pairs=false") == []
    assert data(capsys, "--statistic", "y == 1", "--schema", patients_toml, *asked[4:], "300")["notes"] == []
    # Nothing is said of made-up rows, such as bounds that are too wide for them.
    monkeypatch.setattr("learner.planned_questions._SEED", 3)
    assert notes(300) == [straight]
    assert run(["plan", *asked, "300"]) == 0
    assert f"Note: {straight}." in capsys.readouterr().out


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_a_statistic_s_plan_has_its_tolerance(capsys, patients_file, patients_toml, delta):
    texts = ['(x["age"] >= 65) & (y == 1)', '~x["smoker"]']
    federation = simulated_federation(patients_file, schema=PATIENTS, parties=4, seed=7)
    found = federation.statistic([parse(text) for text in texts], epsilon=Fraction(1, 2), delta=delta)
    asked = [part for text in texts for part in ("--statistic", text)]
    plan = data(
        capsys, *asked, "--schema", patients_toml, "--rows", "8000", "--parties", "4", "--epsilon", "1/2", "--delta",
        str(delta),
    )  # fmt: skip
    for name in ("tolerance", "sampling", "quantisation", "noise", "confidence"):
        assert plan[name] == getattr(found, name)
    assert plan["predicates"] == texts
    assert plan["epsilon_if_others_collude"] <= 0.5
    few = data(
        capsys, *asked, "--schema", patients_toml, "--rows", "8000", "--parties", "4", "--epsilon", "1/2",
        "--tolerance", "0.001",
    )  # fmt: skip
    assert not few["feasible"]
    assert "8000 rows cannot keep a tolerance" in few["reason"]


@pytest.mark.more
def test_the_noise_is_that_of_the_answers(patients_file):
    """By other code: what oracles state of their answers, and the plan of a design."""
    federation = simulated_federation(patients_file, schema=PATIENTS, parties=4, seed=7)
    epsilon, delta, rows = Fraction(1), Fraction(1, 10**6), sum(ROWS)
    (asked,) = ask_cost(request(predicates=("y == 1",))).answers
    estimates = federation.statistic([parse("y == 1")], epsilon=epsilon, delta=delta)
    assert asked.noise_sd == pytest.approx(estimates.deviation * rows)
    assert asked.noise_over_sampling == pytest.approx(2 * estimates.deviation * rows**0.5)
    descent = ask_cost(request("logistic-gd", options={"rounds": 3, "clip": 2.0})).answers
    gradient = federation.within(epsilon, delta).gradient(np.zeros(18), clip=Fraction(2), part=Fraction(1, 3))
    assert len(descent) == 3
    assert descent[0].noise_sd == pytest.approx(gradient.deviation * rows)
    # A coordinate is in [-1, 1], and in less if the clip is smaller.
    assert descent[0].noise_over_sampling == pytest.approx(gradient.deviation * rows**0.5)
    shorter = ask_cost(request("logistic-gd", options={"rounds": 3, "clip": 0.5})).answers
    assert shorter[0].noise_over_sampling == pytest.approx(shorter[0].noise_sd / (0.5 * rows**0.5))
    # The squared lengths of 18 coordinates' noise and of rows clipped to 2, of three answers.
    together = ask_cost(request("logistic-gd", options={"rounds": 3, "clip": 2.0})).signal.alarming
    assert 3 * together**2 == pytest.approx(18 * (gradient.deviation * rows) ** 2 / (rows * 2**2))
    design = plan_cost(PlanRequest.over(PATIENTS, design="moments", party_rows=ROWS, epsilon=epsilon))
    regression = ask_cost(request("linear-regression"))
    assert regression.signal.noise_over_sampling == pytest.approx(design.signal.noise_over_sampling)
    assert regression.statement.epsilon == design.epsilon
    # Three rounds with a third of the budget each tell as much as one with all of it.
    once = ask_cost(request("logistic-gd", options={"rounds": 1, "clip": 2.0}))
    thrice = ask_cost(request("logistic-gd", options={"rounds": 3, "clip": 2.0}))
    assert thrice.signal.noise_over_sampling == pytest.approx(once.signal.noise_over_sampling, rel=1e-4)


@pytest.mark.more
def test_honest_parties_are_counted_as_in_a_query():
    for parties, honest in ((4, 1), (4, 2), (4, 3), (5, 2), (2, 1), (2, 2)):
        counted = ask_cost(request(predicates=("y == 1",), party_rows=(2000,) * parties, honest=honest))
        assert counted.honest_parties == honest
    usual, all_of_them = ask_cost(request("newton")), ask_cost(request("newton", honest=4))
    assert (usual.honest_parties, all_of_them.honest_parties) == (3, 4)
    assert all_of_them.statement.epsilon == all_of_them.statement.epsilon_if_others_collude
    assert usual.statement.epsilon < usual.statement.epsilon_if_others_collude
    assert all_of_them.answers[0].noise_sd < usual.answers[0].noise_sd


def test_no_figure_of_privacy_depends_on_the_made_up_rows(monkeypatch):
    """Other rows, and the same plan: noise follows from the budget's parts alone."""
    plans = []
    for seed in (1, 2):
        monkeypatch.setattr("learner.planned_questions._SEED", seed)
        plans.append(ask_cost(request("newton")))
    first, second = (plan.statement for plan in plans)
    assert (first.epsilon, first.assumptions) == (pytest.approx(second.epsilon, rel=1e-5), second.assumptions)
    assert not np.array_equal(made_up_records(PATIENTS).features[:, 0], np.zeros(512))


@pytest.mark.more
def test_without_a_schema_an_estimator_of_numbers_is_planned(capsys):
    found = data(capsys, "--estimator", "newton", "--rows", "8000", "--parties", "4", "--coordinates", "18",
                 "--epsilon", "1")  # fmt: skip
    assert (found["coordinates"], found["unit"], found["scope"]) == (18, "one record", "record")
    assert found["estimator"] == "newton"
    assert made_up_schema(18).d == made_up_schema(18, bias=False).d == 18
    assert found["upload_bytes_per_party"] == sum(answer["upload_bytes_per_party"] for answer in found["answers"])
    assert any("replaced by any other record" in text for text in found["assumptions"])
    fewer = data(capsys, "--estimator", "newton", "--rounds", "3", "--rows", "8000", "--parties", "4",
                 "--coordinates", "18", "--epsilon", "1")  # fmt: skip
    assert len(fewer["answers"]) == 3
    assert run(["plan", "--estimator", "newton", "--rows", "8000", "--parties", "4", "--coordinates", "18",
                "--epsilon", "1"]) == 0  # fmt: skip
    text = capsys.readouterr().out
    for words in ("It asks moments", "It asks 7 times: the gradient", "at delta 1e-06 against the learner alone",
                  "for one record", "Assumed: ", "times the sampling error"):  # fmt: skip
        assert words in text


def test_every_key_of_a_design_s_plan_is_there(capsys, patients_toml):
    design = data(capsys, "--design", "dp-feat", "--rows", "8000", "--parties", "4", "--rados", "10")
    asked = data(capsys, "--estimator", "newton", "--schema", patients_toml, "--rows", "8000", "--parties", "4",
                 "--epsilon", "1")  # fmt: skip
    assert design.keys() <= asked.keys()


DESIGNS = {
    "plain": {"rados": 40},
    "dp-feat": {"rados": 40, "sensitive": ("smoker", "age"), "rounded": ("age",)},
    "dp-feat, truncated": {"rados": 40, "sensitive": ("smoker",), "epsilon_per_rado": Fraction(2)},
    "joint": {"rados": 40, "sensitive": ("diagnosis",), "joint": True, "epsilon": Fraction(1)},
    "joint, a feature's name": {"rados": 40, "sensitive": ("diagnosis=stroke",), "joint": True, "epsilon": Fraction(1)},
    "fixed-support": {"rados": 40, "epsilon": Fraction(1)},
    "gaussian": {"rados": 40, "epsilon": Fraction(1)},
    "gaussian, support": {"rados": 40, "epsilon": Fraction(1), "support": Fraction(1, 10)},
    "moments": {"epsilon": Fraction(1)},
    "moments, clipped": {"epsilon": Fraction(1), "norm_bound": Fraction(2), "edge_weight": Fraction(1)},
}


@pytest.mark.variants(3)
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_plan_over_a_schema_is_the_query_s_own_plan(learner_key, name, bias):
    shared = replace(PATIENTS, bias=bias)
    design = {"joint": "dp-feat"}.get(name.partition(",")[0], name.partition(",")[0])
    world = World(learner_key, {f"party-{place}": rows for place, rows in enumerate(ROWS)})
    asked = release_request(shared, ReleaseFields(design=design, **DESIGNS[name]))
    real = world.plan(asked, stated_rows=world.rows)
    cost = plan_cost(PlanRequest.over(shared, design=design, party_rows=ROWS, key_bits=2048, **DESIGNS[name]))
    assert cost.feasible
    assert (cost.sizes.ciphertexts, cost.sizes.slot_bits) == (real.ciphertexts, real.query.encoding.slot_bits)
    assert cost.sizes.upload_bytes_per_party == real.upload_bytes_per_party
    if name == "plain":
        assert cost.marginal_epsilon == real.cost.epsilon
        return
    assert (cost.epsilon, cost.epsilon_if_others_collude) == (real.cost.epsilon, real.cost.epsilon_if_others_collude)
    assert cost.scope == real.cost.scope
    noised = getattr(real.query.kind, "design", real.query.kind)
    share = next((getattr(noised, field) for field in ("share_sigma", "edge_sigma") if hasattr(noised, field)), 0)
    assert (0 if cost.noise is None else cost.noise.share_sd) == share


def test_what_a_schema_says_is_not_said_twice(capsys, patients_toml):
    moments = ("plan", "--design", "moments", "--rows", "800", "--parties", "4", "--epsilon", "1", "--schema",
               patients_toml)  # fmt: skip
    assert run([*moments]) == 0
    for more, says in (
        (("--coordinates", "5"), "the schema determines coordinates"),
        (("--no-bias",), "the schema determines bias"),
    ):
        assert run([*moments, *more]) == 4
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--estimator", "newtn"), "did you mean 'newton'"),
        (("--estimator", "mean-variance"), "plan the design of its release"),
        (("--estimator", "newton", "--rados", "3"), "--rados is of a design"),
        (("--estimator", "newton", "--joint"), "--joint is of a design"),
        (("--estimator", "newton", "--statistic", "y == 1"), "either an --estimator or a --statistic"),
        (("--estimator", "newton", "--delta", "0"), "give a delta"),
        (("--estimator", "newton", "--coordinates", "3"), "leave --coordinates and --no-bias out"),
        (("--estimator", "newton", "--rounds", "1"), "give at least 2"),
        (("--estimator", "newton", "--honest", "9"), "9 honest parties of 4"),
        (("--estimator", "newton", "--option", "depth=3"), "has no option 'depth'"),
        (
            ("--estimator", "additive", "--option", "increasing=smoker", "--option", "increasing=age"),
            "option increasing is given twice: give it once (for names: separated by commas)",
        ),
        (("--estimator", "threshold"), "needs the option feature"),
        (("--statistic", 'x["agee"] >= 3'), "did you mean 'age'"),
        (
            ("--rounds", "3", "--rados", "5", "--sensitive", "smoker"),
            "--rounds is of an --estimator, and a design is planned",
        ),
        (("--estimator", "newton", "--split", "exact"), "--split is of a design"),
        (("--estimator", "newton", "--source", "numeric"), "--source is of a design"),
        (("--estimator", "newton", "--tolerance", "0.1"), "--tolerance is of a --statistic"),
        (("--statistic", "y == 1", "--rounds", "3"), "--rounds is of an --estimator, and a --statistic is planned"),
        (
            ("--design", "dp-feat", "--rados", "5", "--sensitive", "smoker", "--noise-rate", "0.1"),
            "--noise-rate is of a --statistic",
        ),
        (("--design", "dp-feat", "--rados", "5"), "needs a sensitive feature"),
        (("--design", "dp-feat", "--rados", "5", "--sensitive", "smokr"), "did you mean 'smoker'"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_and_4(capsys, patients_toml, arguments, says):
    budget = () if "--rados" in arguments and "--estimator" not in arguments else ("--epsilon", "1")
    code = run(["plan", "--rows", "800", "--parties", "4", "--schema", patients_toml, *budget, *arguments])
    said = capsys.readouterr().err
    assert code == 4
    assert says in said
    assert "Traceback" not in said


def test_what_is_missing_is_said(capsys, patients_toml):
    asked = ("plan", "--rows", "800", "--parties", "4")
    assert run([*asked, "--estimator", "newton", "--schema", patients_toml]) == 4
    assert "give the --epsilon" in capsys.readouterr().err
    for what in (("--estimator", "newton"), ("--statistic", "y == 1", "--coordinates", "3")):
        assert run([*asked, *what, "--epsilon", "1"]) == 4
        assert "give --schema" in capsys.readouterr().err
    assert run([*asked, "--rados", "3", "--sensitive", "smoker"]) == 4
    assert "names of a schema" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"estimator": None},
        {"predicates": ("y == 1",)},
        {"party_rows": ()},
        {"party_rows": (5, 0)},
        {"party_rows": (10**10, 1)},
        {"honest": 0},
        {"honest": 5},
        {"key_bits": 1024},
    ],
)
def test_requests_that_make_no_sense_are_refused(changes):
    with pytest.raises(ConfigurationError):
        request(**{"estimator": "newton", **changes})


def test_release_estimators_are_told_from_those_that_ask():
    for name in FROM_RELEASES:
        with pytest.raises(ConfigurationError, match="plan the design of its release"):
            request(name)
    parties = PlannedParties(request("newton"))
    assert (parties.rows, parties.unanswered, parties.plans) == (8000, (), [])


@pytest.mark.more
def test_a_plan_of_curves_of_several_classes_counts_their_gradients():
    label = Classes(column="kind", values=("ant", "bee", "cow"))
    schema = replace(made_up_schema(6), label=label)
    cost = ask_cost(request("additive", schema=schema, party_rows=(8000,) * 4))
    assert [answer.kind for answer in cost.answers] == ["statistic", "moments"] + ["gradient"] * 8
    assert cost.answers[2].values % 3 == 0
    assert cost.answers[2].words.endswith("over 3 classes")
    assert 0.9999 < cost.statement.epsilon_if_others_collude <= 1
    straight = ask_cost(request("additive", schema=schema, party_rows=(50,) * 4))
    assert [answer.kind for answer in straight.answers] == ["moments"] + ["gradient"] * 7
