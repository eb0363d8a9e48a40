"""`radofed.simulate` and `rado simulate`, in this process: what they give, that it repeats, and what they refuse."""

import csv
import gzip
import importlib.util
import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

import radofed
from dpcore.errors import ConfigurationError, PlanError, RadofedError
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost
from dpcore.numbers.rationals import exact
from dpcore.rados.distribution import RadoDistribution
from radofed.cli.entry_point import run
from radofed.simulation import federation as federation_module
from radofed.simulation.evaluation import auc
from tests.radofed.simulation_world import ROWS, SCHEMA, figures, made_up, recorded, simulate


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("simulate") / "made_up.csv.gz")


@pytest.mark.more
def test_a_simulation_repeats_and_another_seed_is_another(table):
    learners = ["mean-variance", "radoboost", "adaboost"]
    first, again = (simulate(table, estimators=learners, design="plain", folds=2) for _ in range(2))
    assert figures(first) == figures(again)
    assert figures(first) != figures(simulate(table, estimators=learners, design="plain", folds=2, seed=3))
    assert [summary.learner for summary in first.summaries] == [*learners, "logistic", "majority"]
    sees = {summary.learner: summary.sees for summary in first.summaries}
    assert sees == {
        "mean-variance": "rados",
        "radoboost": "rados",
        "adaboost": "rows",
        "logistic": "rows",
        "majority": "labels",
    }
    by_name = first.to_dict()["results"]
    assert by_name["mean-variance"]["test_error_mean"] < by_name["majority"]["test_error_mean"] - 0.1


@pytest.mark.more
@pytest.mark.parametrize(
    "options",
    [
        {"design": "plain", "rados": 60},
        pytest.param(
            {"design": "dp-feat", "sensitive": "member", "rados": 40, "epsilon_per_rado": 3, "delta": 0.01},
            marks=pytest.mark.slow,
        ),
        {
            "design": "dp-feat",
            "sensitive": "member",
            "rados": 40,
            "epsilon_per_rado": 3,
            "delta": 0.01,
            "split": "exact",
        },
        pytest.param(
            {"design": "dp-feat", "sensitive": ["member", "x0"], "rounded": "x0", "rados": 30}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"design": "dp-feat", "sensitive": "member", "joint": True, "epsilon": 5, "rados": 30},
            marks=pytest.mark.slow,
        ),
        {"design": "fixed-support", "epsilon": 20, "rados": 30, "split": "exact"},
        {"design": "gaussian", "epsilon": 5, "rados": 30},
    ],
    ids=lambda options: "-".join(
        [options["design"], *(key for key in ("split", "joint", "rounded") if key in options)]
    ),
)
def test_encryption_changes_no_number(table, options):
    """P6: signatures and noise are the same, so every rado is, bit for bit."""
    bare, bare_releases = recorded(table, parties=3, folds=2, **options)
    sealed, sealed_releases = recorded(table, parties=3, folds=2, encrypt=True, key_bits=2048, **options)
    assert len(bare_releases) == len(sealed_releases) == 2
    for a, b in zip(bare_releases, sealed_releases, strict=True):
        assert np.array_equal(a.rados, b.rados)
        assert a.rows == b.rows
    assert not np.array_equal(bare_releases[0].rados, bare_releases[1].rados)
    assert figures(bare) == figures(sealed)
    assert bare.privacy == sealed.privacy
    assert sealed.federation.encrypted
    assert sealed.federation.upload_bytes_per_party > 0
    assert bare.federation.upload_bytes_per_party is None


def test_encryption_really_happens(table, monkeypatch):
    """A chunk that is altered on its way is noticed, so what is opened is what travelled."""
    multiply = federation_module.multiply

    def altered(key, chunks):
        product = key.from_wire(multiply(key, chunks))
        product[0] = product[0] * (1 + key.n) % key.n_squared  # one row more in the check slot
        return key.to_wire(product)

    monkeypatch.setattr(federation_module, "multiply", altered)
    with pytest.raises(RadofedError, match="counts"):
        simulate(table, encrypt=True, key_bits=2048, rados=5)


def test_the_rados_are_those_of_the_training_rows(table):
    """Each coordinate's mean over many plain rados is half the sum over the edges, and the bias tells the classes."""
    result, (first, *_) = recorded(table, schema=SCHEMA, rados=1000, folds=2, partition="label-skew")
    assert first.rows == ROWS // 2
    assert first.rados.shape == (1000, 4)
    assert first.bias
    assert isinstance(first.distribution, RadoDistribution)
    same, bias = first.rados[:, 1], first.rados[:, 3]
    assert np.allclose(same, 0.4 * bias, atol=ROWS * 2**-16)  # 7 of 0 to 10 is 0.4 in [-1, 1]
    spread = np.sqrt(ROWS / 2 / 4 / 1000)
    positive = round(ROWS / 2 * 0.5 + bias.mean())
    assert 0 < positive < ROWS / 2
    assert np.var(bias) == pytest.approx(ROWS / 8, rel=0.2)
    assert abs(bias.mean() - (2 * positive - ROWS / 2) / 2) < 0.5 + 5 * spread
    assert result.federation.party_rows == (30, 30)


@pytest.mark.more
def test_logistic_is_scikit_learn_s_on_the_same_rows_and_folds(table):
    result = simulate(table, schema=SCHEMA)
    with gzip.open(table, "rt") as file:
        rows = list(csv.DictReader(file))
    x = np.array([[np.clip(float(r["x0"]), -3, 3) / 3, 0.4, 1.0 if r["member"] == "yes" else -1.0] for r in rows])
    y = np.array([1 if r["y"] == "in" else -1 for r in rows])
    found = [row for row in result.rows if row.learner == "logistic"]
    for row, (training, test) in zip(
        found, StratifiedKFold(3, shuffle=True, random_state=2).split(x, y > 0), strict=True
    ):
        model = LogisticRegression(max_iter=5000).fit(x[training], y[training])
        assert row.test_error == pytest.approx(np.mean(model.predict(x[test]) != y[test]), abs=0.5 / len(test))
        assert row.auc == pytest.approx(roc_auc_score(y[test], model.decision_function(x[test])), abs=0.003)
        assert (row.training_rows, row.test_rows) == (len(training), len(test))


def test_auc_counts_ties_as_half():
    random = np.random.RandomState(5)
    labels = random.choice([-1, 1], 300).astype(np.int8)
    margins = np.round(random.normal(size=300) + 0.5 * labels, 1)
    assert auc(margins, labels) == pytest.approx(roc_auc_score(labels, margins), abs=1e-12)
    assert auc(np.zeros(300), labels) == 0.5
    assert np.isnan(auc(margins, np.ones(300, dtype=np.int8)))


@pytest.mark.parametrize("partition", ["iid", "size-skew", "label-skew", "by-column:site"])
def test_partitions_change_the_parties_but_not_the_distribution(table, partition):
    result, releases = recorded(table, partition=partition, rados=200)
    assert {release.rados.shape[0] for release in releases} == {200}
    assert sum(release.rows for release in releases) == 2 * ROWS
    if partition == "by-column:site":
        assert any("what divides the rows, and no feature" in note for note in result.notes)
        assert result.coordinates == recorded(table, rados=5)[0].coordinates - 5
    assert result.federation.partition == partition


@pytest.mark.more
def test_a_marginal_budget_sets_how_many_rados(table):
    result = simulate(table, design="dp-feat", sensitive=["member"], epsilon="2.5", parties=2)
    assert result.privacy.scope == "marginal"
    assert 2.0 < result.privacy.epsilon <= 2.5
    assert 2 <= result.federation.rados < ROWS / 3
    with pytest.raises(PlanError, match="at most"):
        simulate(table, design="dp-feat", sensitive=["member"], epsilon="2.5", parties=2, rados=70)


@pytest.mark.more
def test_an_exact_split_says_whom_it_trusts(table):
    options = {"design": "dp-feat", "sensitive": "member", "rados": 20, "epsilon_per_rado": "3", "delta": "0.01"}
    exact, local = (simulate(table, split=split, **options) for split in ("exact", "local"))
    assert "honestly" in exact.privacy.assumptions[0]
    assert not any("honestly" in text for text in local.privacy.assumptions)
    assert exact.privacy.epsilon < local.privacy.epsilon


@pytest.mark.more
def test_an_exact_split_of_counts_does_not_cover_the_coordinator(table):
    options = {"design": "dp-feat", "sensitive": "member", "rados": 20, "epsilon_per_rado": "3", "delta": "0.01"}
    counts = simulate(table, split="exact", **options)
    assert any("does not cover the coordinator" in text for text in counts.privacy.assumptions)
    # A noised table costs the same, no matter who knows the counts.
    noised = simulate(table, design="fixed-support", epsilon=3, rados=5, split="exact")
    assert not any("does not cover the coordinator" in text for text in noised.privacy.assumptions)


def test_noise_is_within_the_epsilon_that_was_asked_for(table):
    result, (first, *_) = recorded(table, design="gaussian", epsilon=2, rados=50)
    assert result.privacy.scope == "record"
    assert result.privacy.epsilon < result.privacy.epsilon_if_others_collude <= 2
    assert result.privacy.epsilon_if_others_collude > 1.99
    assert (first.distribution.rado_noise > 0).all()
    assert result.federation.colluders == 1
    assert result.federation.honest_parties == 3


def test_two_parties_have_no_colluders(table):
    assert simulate(table, parties=2, rados=5).federation.colluders == 0


class MomentsLearner:
    def fit_moments(self, moments):
        self.theta = np.linalg.solve(moments.product_sum + 10 * np.eye(moments.d), moments.edge_sum)

    def decision_function(self, X):
        return X @ self.theta


def test_moments_go_to_learners_of_moments(table):
    result = simulate(table, design="moments", epsilon=100, estimators={"ridge": MomentsLearner()})
    (ridge, logistic, majority) = result.summaries
    assert ridge.sees == "moments"
    assert abs(ridge.test_error_mean - logistic.test_error_mean) < majority.test_error_mean / 2
    assert result.federation.rados is None
    with pytest.raises(ConfigurationError, match="cannot learn from moments"):
        simulate(table, design="moments", epsilon=100, estimators="radoboost")
    with pytest.raises(ConfigurationError, match="cannot learn from rados"):
        simulate(table, design="plain", estimators={"ridge": MomentsLearner()})


def test_a_row_without_values_stays_in_training_and_is_never_tested(tmp_path):
    path = made_up(tmp_path / "t.csv")
    lines = path.read_text().splitlines()
    lines[5] = ",".join(["", *lines[5].split(",")[1:]])
    path.write_text("\n".join(lines) + "\n")
    text = SCHEMA.to_toml().replace(
        'missing = "refuse"\nout_of_bounds = "clip"', 'missing = "zero-vector"\nout_of_bounds = "clip"'
    )
    schema = tmp_path / "schema.toml"
    schema.write_text(text)
    result, releases = recorded(path, schema=schema, design="plain")
    assert result.unusable_rows == 1
    tested = [row.test_rows for row in result.rows if row.learner == "mine"]
    assert sum(tested) == ROWS - 1
    assert [release.rows for release in releases] == [ROWS - count for count in tested]


@pytest.mark.more
def test_inference_is_not_private_and_says_so(table):
    inferred, given = simulate(table, rados=5), simulate(table, rados=5, schema=SCHEMA)
    assert any("not private" in note for note in inferred.notes)
    assert not any("not private" in note for note in given.notes)
    assert any("'same' is left out" in note for note in inferred.notes)


def test_inferred_bounds_are_quantiles(tmp_path):
    from radofed.simulation.table import read_table

    random = np.random.RandomState(4)
    values = random.normal(size=2000)
    values[0], values[1] = 1e6, -1e6
    rare = np.zeros(2000)
    rare[:5] = [1, 2, 3, 4, 5]
    path = tmp_path / "t.csv"
    lines = [f"{v},{'' if i % 50 == 0 else v},{r},{i % 2}" for i, (v, r) in enumerate(zip(values, rare, strict=True))]
    path.write_text("v,gaps,rare,y\n" + "\n".join(lines) + "\n")
    schema = read_table(path, label="y", positive=["1"], schema=None, group_column=None).schema
    v, gaps, rare_feature = schema.features
    assert (v.lower, v.upper) == pytest.approx(tuple(np.quantile(values, [0.005, 0.995])))
    assert v.out_of_bounds == "clip"
    assert gaps.missing == "impute"
    assert abs(gaps.impute) < 0.2
    assert (rare_feature.lower, rare_feature.upper) == (0.0, 5.0)


# The command.

COMMAND = ("--label", "y", "--positive", "in", "--parties", "3", "--folds", "2", "--workers", "0")


def test_the_command_prints_one_object(table, tmp_path, capsys):
    rows = tmp_path / "rows.parquet"
    arguments = ["simulate", "--data", str(table), *COMMAND, "--design", "plain", "--seed", "2"]
    arguments += ["--estimator", "radoboost,mean-variance"]
    assert run([*arguments, "--per-fold", str(rows), "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    data = found["data"]
    assert found["status"] == "ok"
    assert list(data["results"]) == ["radoboost", "mean-variance", "logistic", "majority"]
    for summary in data["results"].values():
        assert {"test_error_mean", "test_error_std", "auc_mean", "seconds"} <= set(summary)
        assert 0 <= summary["test_error_mean"] <= 1
    assert data["privacy"]["scope"] == "marginal"
    assert data["federation"]["colluders"] == 1
    assert "c = 1" in captured.err
    assert "fold 2 of 2" in captured.err
    table_rows = pq.read_table(rows).to_pydict()
    assert table_rows["fold"] == [1] * 4 + [2] * 4
    mean = np.mean(
        [e for e, name in zip(table_rows["test_error"], table_rows["learner"], strict=True) if name == "majority"]
    )
    assert mean == pytest.approx(data["results"]["majority"]["test_error_mean"])
    assert run([*arguments, "--per-fold", str(rows), "--format", "json"]) == 4


@pytest.mark.more
def test_the_command_and_the_function_are_the_same(table, capsys):
    assert run(["simulate", "--data", str(table), *COMMAND, "--seed", "2", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    found = radofed.simulate(table, label="y", positive="in", parties=3, folds=2, workers=0, seed=2).to_dict()
    for name, summary in found["results"].items():
        assert data["results"][name]["test_error_mean"] == summary["test_error_mean"]
    assert data.keys() == {*found, "per_fold"}
    # Without options the estimator is the one to try first, with records protected.
    assert data["privacy"] is found["privacy"] is None
    assert 0.9 < data["asked"]["newton"]["epsilon_if_others_collude"] <= 1.0
    with_rados = radofed.simulate(
        table, label="y", positive="in", parties=3, folds=2, workers=0, design="plain", rados=5
    )
    assert {row.learner for row in with_rados.rows} >= {"mean-variance"}


def test_an_option_with_one_value_is_not_given_twice_in_silence(capsys):
    noise = ("plan", "--design", "moments", "--rows", "4000", "--parties", "4", "--coordinates", "3", "--epsilon=1")
    assert run([*noise]) == 0
    assert "note: --epsilon" not in capsys.readouterr().err
    assert run([*noise, "--epsilon", "0.5"]) == 0
    assert "note: --epsilon is given 2 times and takes one value: the last one holds" in capsys.readouterr().err


def test_positive_has_one_grammar(table, capsys):
    """A value may have a comma, so each is given on its own, as of `schema infer`."""
    command = ["simulate", "--data", str(table), "--label", "y", "--parties", "3", "--folds", "2", "--workers", "0"]
    for start in (command, ["schema", "infer", str(table), "--label", "y"]):
        assert run([*start, "--positive", "in", "--positive", "out"]) == 4
        assert "no other value than the positive ones, so that no row is negative" in capsys.readouterr().err
        assert run([*start, "--positive", "in,out"]) == 4
        assert "give each value on its own: --positive A --positive B" in capsys.readouterr().err


def test_one_row_of_a_class_is_not_cross_validated(tmp_path, capsys):
    file = tmp_path / "rare.csv"
    file.write_text("age,city,y\n" + "".join(f"{20 + n % 40},{'ab'[n % 2]},{int(n == 7)}\n" for n in range(100)))
    for folds in ("2", "3"):
        asked = ["--label", "y", "--positive", "1", "--parties", "3", "--folds", folds, "--workers", "0"]
        assert run(["simulate", "--data", str(file), *asked]) == 4
        assert "the rarer class has 1 usable row" in capsys.readouterr().err


@pytest.mark.parametrize("rows", ["40.000", "40,000", "1_000", "4e4", "\u0664", " 40", ""])
def test_integers_are_digits(rows, capsys):
    options = ["--design", "moments", "--parties", "4", "--coordinates", "20", "--epsilon", "1"]
    assert run(["plan", *options, f"--rows={rows}"]) == 4
    assert "is not a whole number: write digits only" in capsys.readouterr().err


@pytest.mark.parametrize("epsilon", ["1_0", "1/1_0", "1e-1_0", "\uff11", "1,5"])
def test_a_budget_is_not_guessed_at(epsilon, capsys):
    """1_0 was read as 10, as Python does."""
    options = ["--design", "moments", "--parties", "4", "--coordinates", "20", "--rows", "40000"]
    assert run(["plan", *options, f"--epsilon={epsilon}"]) == 4
    how = "write a decimal point, as in 0.5" if "," in epsilon else "write, say, 1e-6 or 1/2"
    assert f"is not a number; {how}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--epsilon", "--delta"])
def test_numbers_are_within_doubles(option, capsys):
    options = {"--rows": "40000", "--parties": "4", "--coordinates": "20", "--design": "moments", "--epsilon": "1"}
    given = [word for pair in {**options, option: "1e-400"}.items() for word in pair]
    assert run(["plan", *given]) == 4
    assert "too large or too small" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--epsilon", "nan", "--design", "gaussian"], 4), (["--rados", "0"], 4), (["--parties", "500"], 4)],
)
def test_the_command_refuses_with_an_exit_code(table, capsys, options, code):
    assert run(["simulate", "--data", str(table), *COMMAND, *options, "--format", "json"]) == code
    assert json.loads(capsys.readouterr().out)["status"] == "error"


@pytest.mark.more
def test_the_text_is_for_people(table, capsys):
    assert run(["simulate", "--data", str(table), *COMMAND]) == 0
    captured = capsys.readouterr()
    assert "newton" in captured.out
    assert "estimator newton, epsilon 1" in captured.err
    assert "not private" in captured.out


def test_rows_for_a_directory_that_is_not_there_are_refused_before_any_work(table, tmp_path, capsys):
    rows = tmp_path / "no" / "rows.parquet"
    assert run(["simulate", "--data", str(table), *COMMAND, "--per-fold", str(rows)]) == 4
    captured = capsys.readouterr()
    assert "not a directory" in captured.err
    assert "fold 1" not in captured.err


@pytest.mark.more
def test_rados_of_one_side_are_said_to_be(tmp_path):
    path = tmp_path / "apart.csv"
    path.write_text("x,y\n" + "".join(f"{2 * (i % 2) - 1},{i % 2}\n" for i in range(60)))
    found = radofed.simulate(
        path,
        label="y",
        positive="1",
        parties=3,
        folds=2,
        workers=0,
        design="plain",
        estimators={"as they are": RadoBoost(recentre=None), "mean-variance": MeanVariance()},
    )
    said = [note for note in found.notes if note.startswith("as they are, in 2 of 2 folds: ")]
    assert len(said) == 1
    assert "no minimum" in said[0]
    assert not any(note.startswith("mean-variance, in") for note in found.notes)


@pytest.mark.more
def test_what_stands_for_missing_cells_is_one_sentence(tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text(
        "a,b,y\n"
        + "".join(f"{'' if i % 7 == 0 else i % 10},{'' if i % 8 == 0 else 'uv'[i % 2]},{i % 2}\n" for i in range(80))
    )
    notes = radofed.simulate(path, label="y", positive="1", parties=2, folds=2, workers=0).notes
    (said,) = (note for note in notes if "issing cells are imputed:" in note)
    assert said.endswith("in 'a', 'v' in 'b'.")
    assert not any("choose a constant" in note for note in notes)


def test_without_pandas_the_columns_are_there(table):
    result = simulate(table, rados=5)
    columns = result.columns()
    assert len(columns["fold"]) == len(result.rows) == 9
    if importlib.util.find_spec("pandas") is None:
        with pytest.raises(ConfigurationError, match="pandas is not installed"):
            result.to_pandas()
    else:
        assert list(result.to_pandas().columns) == list(columns)


def test_the_documents_example_runs(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).resolve().parents[2] / "docs" / "simulation.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    made_up(tmp_path / "patients.csv.gz", label="outcome", classes=("died", "lived"))
    exec(code, {})
    assert re.search(r"^mean edge 0\.\d+$", capsys.readouterr().out, re.MULTILINE)


def test_exact_numbers():
    assert exact(1e-6, "delta") == exact("1e-6", "delta") == Fraction(1, 10**6)
    assert exact("1/3", "epsilon") == Fraction(1, 3)


@pytest.mark.more
def test_estimators_of_releases_learn_over_a_map(tmp_path, capsys):
    """Both labels have the same mean of x: no line tells them apart. A hat does, also on rows that are held back."""
    random = np.random.default_rng(5)
    x = random.uniform(-1, 1, 900)
    with (tmp_path / "bent.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("x", "y"), *zip(x, np.where(np.abs(x) < 0.5, "in", "out"), strict=True)])
    (tmp_path / "map.toml").write_text('map_version = 1\n[[terms]]\nhats = "x"\nknots = [-0.9, 0, 0.9]\n')
    command = ["simulate", "--data", str(tmp_path / "bent.csv"), "--label", "y", "--positive", "in", "--parties", "3"]
    command += ["--folds", "2", "--workers", "0", "--epsilon", "8", "--estimator", "mean-variance", "--format", "json"]
    mapped = ["--map", str(tmp_path / "map.toml")]
    for design, options in (("moments", ["--hold-back", "1/5"]), ("gaussian", ["--rados", "200"])):
        for terms, least, most in ((mapped, 0.0, 0.2), ([], 0.35, 1.0)):
            assert run([*command, "--design", design, *options, *terms]) == 0
            found = json.loads(capsys.readouterr().out)["data"]
            assert least < found["results"]["mean-variance"]["test_error_mean"] < most
            assert any("under a feature map: 1 hat" in note for note in found["notes"]) == bool(terms)
            if design == "moments":
                assert least - 0.1 < found["results"]["mean-variance"]["evaluated_error_mean"] < most + 0.1
