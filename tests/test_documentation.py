"""What the documents tell people to type exists, as do the tests that they name."""

import csv
import functools
import inspect
import io
import itertools
import operator
import re
import shlex
from contextlib import redirect_stdout
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import typer

from dpcore.accounting.filters import NO_LOSS, PrivacyLimit
from dpcore.estimators import additive_losses
from dpcore.estimators.conjunction import rows_needed
from dpcore.estimators.private_newton import USUAL, PrivateNewton
from dpcore.predicates import notation
from dpcore.predicates.notation import PredicateSyntaxError, parse, to_text
from dpcore.research.pac_classes import finite_class_guarantee
from dpcore.research.parity import parity_guarantee
from dpcore.statistics.accuracy import Batch, LaplaceNoise, planned_noise, separate_rows
from learner.estimators import BY_QUERIES, make_estimator
from parties.ledger.charges import RECORD, charge_for
from radofed.cli.commands import app
from radofed.simulation.oracles import simulated_federation

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS = [
    (path.name, line.strip().removeprefix("$ "))
    for path in DOCUMENTS
    for line in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines()
    if re.match(r"(    |\$ )\s*(cd \S+ && )?rado [a-z]", line)
]


@functools.cache
def rado_commands():
    return typer.main.get_command(app)


def test_every_command_of_the_documents_exists():
    assert len(COMMANDS) > 150
    for document, line in COMMANDS:
        check_command(document, line)


def check_command(document: str, line: str) -> None:
    words = shlex.split(line.rsplit("&&", maxsplit=1)[-1].split("  #", maxsplit=1)[0], comments=True)[1:]
    command = rado_commands()
    path = ["rado"]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{document}: {' '.join(path)} has no command {words[0]!r}"
        path.append(words[0])
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-"):
            assert word.split("=")[0] in known, f"{document}: {' '.join(path)} has no option {word}"


def asking() -> str:
    return (ROOT / "docs/asking.md").read_text()


def prose() -> str:
    """The text of asking.md, without its line breaks."""
    return " ".join(asking().split())


def table(first_column: str) -> list[list[str]]:
    """The cells of the table of asking.md whose header begins so, without the header."""
    (found,) = re.findall(rf"^\| {first_column} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", asking(), re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in found.splitlines()]


def test_every_predicate_that_is_shown_can_be_written():
    shown = [text for row in table("write") for text in re.findall(r"`([^`]+)`", row[0])]
    written = [text for text in shown if re.search(r"[xyz]\[|y .=|y\.|count|deviance|true|false", text)]
    assert len(written) == 23
    for text in written:
        assert parse(to_text(parse(text))) == parse(text)


def test_the_grammar_is_what_the_parser_reads():
    (grammar,) = re.findall(r"^    any  = .*?(?=\n\n)", asking(), re.MULTILINE | re.DOTALL)
    comments = re.sub(r"^# ?", "", inspect.getsource(notation), flags=re.MULTILINE)
    assert f"{grammar}\n\n" in comments
    for text in ('3*z["age"]+5', '-z["age"]/2', '(3*z["age"]+5)/16', "+4/2/16", "4/2"):
        parse(f"clip({text})")
    for text in ('z["age"]/2+1', '1+z["age"]/2', '(z["age"])+1', '-(z["age"])'):
        with pytest.raises(PredicateSyntaxError):
            parse(f"clip({text})")


@pytest.mark.more
def test_mechanisms_run_as_they_are_shown():
    (code,) = re.findall(r"^```python\n(.*?)^```\n", asking(), re.MULTILINE | re.DOTALL)
    found: dict = {}
    with redirect_stdout(io.StringIO()):
        exec(compile(code, "asking.md", "exec"), found)
    # A thousand answers give deviations below 45; the noise on counts has scale 2; scores are 300 apart.
    assert np.abs(found["estimates"] - found["counts"]).max() < 450
    assert np.abs(found["noisy"] - found["counts"]).max() < 100
    assert found["winner"] == 1
    assert found["drawn"].epsilon == found["epsilon"]
    assert 0.99 < found["descended"].epsilon <= found["epsilon"]
    assert found["descended"].delta == found["delta"]
    assert abs(found["descended"].theta.item()) <= 4


def test_the_table_of_learners_that_ask_is_theirs():
    described = {name: row[2] for row in table("name") for name in re.findall(r"`([a-z-]+)`", row[0])}
    assert set(described) == set(BY_QUERIES)
    for name, words in described.items():
        needed = {"feature": "age"} if "`feature` (needed)" in words else {}
        parameters = {**make_estimator(name, **needed).get_params(), "part": None}
        options = dict(re.findall(r"`([a-z_]+)`(?: ([0-9.]+[0-9]|[0-9]))?", words))
        assert {*options, "part"} == set(parameters)
        for option, default in options.items():
            # newton's and additive's depend on the label: the first number is that of two classes.
            of_additive = getattr(additive_losses, option.upper(), None)
            of_two = of_additive if name == "additive" else getattr(USUAL, option, None)
            usual = of_two if parameters[option] is None else parameters[option]
            assert not default or float(default) == usual, (name, option)


def test_numbers_of_rows_are_those_of_the_formulas():
    gaussian = {m: planned_noise(m, m, Fraction(1), Fraction(1, 10**6)) for m in (1, 100)}
    expected = [
        lambda m, tau: Batch(m).rows(tau, 0.05),
        lambda m, tau: Batch(m, LaplaceNoise(float(m))).rows(tau, 0.05),
        lambda m, tau: Batch(m, LaplaceNoise(2.0)).rows(tau, 0.05),
        lambda m, tau: Batch(m, gaussian[m]).rows(tau, 0.05),
        lambda m, tau: separate_rows(m, tau, 0.05),
        lambda m, tau: separate_rows(m, tau, 0.05, noise=LaplaceNoise(1.0)),
    ]
    for (words, *cells), rows in zip(table("rows needed"), expected, strict=True):
        for cell, tau, m in zip(cells, (0.05, 0.05, 0.01, 0.01), (1, 100, 1, 100), strict=True):
            assert cell == f"{rows(m, tau):,}" or (not cell and "disjoint" in words and m == 1)
    assert f"needs {rows_needed(10, 0.1, 0.05):,} rows" in prose()
    assert f"needs {parity_guarantee(20, 0.1, 0.05, Fraction(1))[1].rows} rows" in prose()
    assert f"Fraction(1))` {finite_class_guarantee(64, 0.1, 0.05, Fraction(1)).rows}." in prose()


@pytest.fixture
def federation(tmp_path):
    rng = np.random.default_rng(0)
    with (tmp_path / "data.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "b", "label"])
        rows.writerows((a, b, "yes" if a > 0 else "no") for a, b in rng.normal(size=(600, 2)))
    return simulated_federation(tmp_path / "data.csv", label="label", positive="yes", parties=5)


def test_what_a_run_is_charged_is_what_the_ledger_counts(federation):
    oracle = federation.within(Fraction(1), Fraction(1, 10**6))
    PrivateNewton(rounds=8).fit_queries(oracle)
    assert 0.9999 < oracle.statement().epsilon_if_others_collude <= 1
    charged = [charge_for(answer.query, 120).bound(RECORD) for answer in oracle.answers]
    total = functools.reduce(operator.add, charged, NO_LOSS)
    for delta, row in zip((Fraction(1, 10**6), Fraction(1, 10**5)), table("the limit's delta"), strict=True):
        spent = PrivacyLimit(Fraction(10), delta).spent(total)
        assert row[2:] == [up(spent), up(float(total.epsilon))]
        least = Fraction(row[1])
        assert [PrivacyLimit(e, delta).admits(total) for e in (least - Fraction(1, 1000), least)] == [False, True]
    assert f"costs a rho of {np.ceil(float(total.rho) * 1e5) / 1e5:.5f}" in prose()
    provisioned = PrivacyLimit(Fraction(10), Fraction(1, 10**5))
    runs = int(provisioned.largest_rho / total.rho)
    assert provisioned.admits(total.times(runs))
    assert not provisioned.admits(total.times(runs + 1))
    assert f"admits {runs} such runs" in prose()


@pytest.mark.more
def test_a_part_below_1_takes_gaussian_noise_and_costs_the_ledger_less(federation):
    provisioned = PrivacyLimit(Fraction(10), Fraction(1, 10**5))
    (code,) = re.findall(r"^    (federation\.within.*part=.*)$", asking(), re.MULTILINE)
    losses, deviations = [], []
    for line in (code.replace(", part=0.999", ""), code):
        oracle, question = re.fullmatch(r"(.*)(\.statistic.*)", line).groups()
        names = {"federation": federation, "Fraction": Fraction}
        names["oracle"] = eval(oracle, names)
        found = eval(f"oracle{question}", names)
        (answer,) = names["oracle"].answers
        losses.append(charge_for(answer.query, 120).bound(RECORD))
        deviations.append(f"{found.deviation * found.rows:.1f}")
    pure, gaussian = losses
    assert float(pure.rho) < 0.5 * np.tanh(0.25)
    assert pure.delta == 0 < gaussian.delta
    assert f"one has a rho of {np.ceil(float(pure.rho) * 1e5) / 1e5}," in prose()
    assert f"This has a rho of {np.ceil(float(gaussian.rho) * 1e5) / 1e5}." in prose()
    oracle = federation.within(Fraction(1), Fraction(1, 10**6))
    PrivateNewton(rounds=8).fit_queries(oracle)
    run = functools.reduce(operator.add, (charge_for(answer.query, 120).bound(RECORD) for answer in oracle.answers))
    after = [
        next(n for n in itertools.count() if not provisioned.admits(held + pure.times(n + 1)))
        for held in (NO_LOSS, run.times(10))
    ]
    assert f"fits {after[0]} times into the provisioned limit if nothing else is asked, and {after[1]} times" in prose()
    assert f"a standard deviation of {deviations[1]} rows instead of {deviations[0]}." in prose()


def up(figure: float) -> str:
    """Three decimals, rounded up."""
    return f"{np.ceil(figure * 1000) / 1000:.3f}"


def test_test_files_that_documents_name_exist():
    named = {name for path in DOCUMENTS for name in re.findall(r"`(tests/[a-z_/]+\.(?:py|json))`", path.read_text())}
    assert len(named) > 50
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]
