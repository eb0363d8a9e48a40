"""A plan that is not possible exits with 1, and every change that it suggests makes it possible."""

import json
import re
import shlex

import pytest

from radofed.cli.entry_point import run
from radofed.demo.tables import schema

BOTH = "--rows 16000 --parties 4 --schema patients.toml"
AGED = "--statistic 'x[\"age\"] >= 65'"
POSSIBLE_TWICE = 2
"""What is wrong in two ways takes two changes."""

CASES = [
    # Counts without a bound, or with too large a one.
    "--design dp-feat --rows 3 --parties 1 --rados 1",
    "--design dp-feat --rows 30 --parties 10 --rados 5",
    "--design dp-feat --party-rows 10,4000 --rados 1",
    "--design dp-feat --rows 300 --parties 1 --rados 20000",
    "--design dp-feat --rows 40 --parties 1 --epsilon 0.01",
    "--design dp-feat --rows 4177 --parties 1 --rados 59 --epsilon 1",
    "--design dp-feat --rows 200 --parties 2 --epsilon 1e-9",
    "--design dp-feat --rows 200 --parties 2 --epsilon 1 --delta 1e-300",
    "--design dp-feat --rows 4177 --parties 1 --rados 100 --delta 1e-250",
    # Truncations that admit nothing, or too little.
    "--design dp-feat --rows 4177 --parties 10 --rados 100 --epsilon-per-rado 0.5",
    "--design dp-feat --rows 4177 --parties 1 --rados 100 --epsilon-per-rado 0.0001",
    "--design dp-feat --rows 10 --parties 2 --rados 100 --epsilon-per-rado 0.3",
    "--design dp-feat --rows 100 --parties 2 --rados 3 --split exact --epsilon-per-rado 0.1",
    # Values that are too many or too large.
    "--design plain --rows 4000 --parties 4 --rados 1000000 --coordinates 1000",
    "--design plain --rows 1000000000 --parties 4 --rados 10 --coordinates 10 --fraction-bits 30",
    "--design dp-feat --rows 4000 --parties 4 --rados 10 --coordinates 10 --fraction-bits 60",
    "--design moments --rows 9000000000 --parties 4 --coordinates 20 --epsilon 1 --fraction-bits 20",
    "--design moments --rows 4000 --parties 4 --coordinates 20 --epsilon 1 --fraction-bits 25",
    "--design dp-feat --joint --rows 4000 --parties 4 --rados 100 --epsilon 1 --coordinates 30 --fraction-bits 50",
    # Noise.
    "--design moments --rows 4000 --parties 4 --coordinates 20 --share-sd 3",
    "--design moments --rows 4000 --parties 4 --coordinates 20 --share-sd 100000000000000000",
    "--design moments --rows 4000 --parties 4 --coordinates 20 --share-sd 1000000 --epsilon 1",
    "--design moments --rows 4000 --parties 4 --coordinates 20 --epsilon 1000",
    "--design moments --rows 4000 --parties 4 --coordinates 20 --epsilon 1 --norm-bound 1000000",
    "--design moments --rows 4000 --parties 4 --coordinates 20 --epsilon 1 --edge-weight 1e12",
    "--design gaussian --rows 4000 --parties 4 --coordinates 20 --rados 10 --epsilon 1 --delta 1e-299",
    "--design gaussian --rows 4000 --parties 4 --coordinates 20 --rados 100 --share-sd 2000000 --epsilon 1",
    "--design dp-feat --joint --rows 4000 --parties 4 --rados 100 --share-sd 3 --epsilon 1",
    # Sets that a party is too small for.
    "--design gaussian --party-rows 3,4000 --coordinates 5 --rados 9 --support 1/10 --epsilon 1",
    "--design gaussian --rows 2 --parties 2 --coordinates 20 --rados 10 --epsilon 1 --support 1/2",
    "--design gaussian --rows 4000 --parties 4 --coordinates 20 --rados 10 --share-sd 5 --support 1/1000000",
    "--design fixed-support --rows 2 --parties 2 --coordinates 20 --rados 10 --epsilon 1",
    # Names.
    f"--design dp-feat --sensitive age {BOTH} --rados 10 --epsilon 5",
    f"--design dp-feat --sensitive diagnosis=stroke {BOTH} --rados 10",
    # What estimators ask, and statistics.
    "--estimator newton --rows 16000 --parties 1 --schema patients.toml --epsilon 1",
    f"--estimator newton {BOTH} --epsilon 1000",
    f"--estimator newton {BOTH} --epsilon 1 --delta 1e-200",
    "--estimator conjunction --rows 200 --parties 4 --schema patients.toml --epsilon 1",
    "--estimator point --option feature=diagnosis --rows 200 --parties 4 --schema patients.toml --epsilon 1",
    f"{AGED} {BOTH} --epsilon 1 --tolerance 0.001",
    f"--estimator threshold --option feature=age --option cuts=8192 {BOTH} --epsilon 1",
    f"{AGED} {BOTH} --epsilon 1e-30",
    f"{AGED} {BOTH} --epsilon 1 --delta 1e-250",
]


def without(arguments, option):
    place = arguments.index(option)
    return arguments[:place] + arguments[place + 2 :]


def untruncated(arguments):
    return without(arguments, "--epsilon-per-rado")


def whole(text):
    return int(text.replace(",", ""))


def changed(arguments, option, value):
    return [*(without(arguments, option) if option in arguments else arguments), option, value]


def with_option(arguments, name, value):
    """In place of the one that is given; twice would be refused."""
    given = [place for place, text in enumerate(arguments) if text.startswith(f"{name}=")]
    kept = [text for place, text in enumerate(arguments) if place not in given and place + 1 not in given]
    return [*kept, "--option", f"{name}={value}"]


def with_rows(arguments, change):
    if "--party-rows" in arguments:
        held = [int(m) for m in arguments[arguments.index("--party-rows") + 1].split(",")]
        return changed(arguments, "--party-rows", ",".join(str(change(m)) for m in held))
    rows, parties = (int(arguments[arguments.index(option) + 1]) for option in ("--rows", "--parties"))
    return changed(arguments, "--rows", str(parties * change(-(-rows // parties))))


WAYS = {
    r"ask for (?:at most )?(\d+) rados": lambda args, n: changed(args, "--rados", n),
    r"ask for (\d+) rados without truncation": lambda args, n: changed(untruncated(args), "--rados", n),
    r"draw without truncation, at an epsilon of .*": untruncated,
    r"allow an epsilon of (\S+)": lambda args, figure: changed(args, "--epsilon", figure),
    r"choose a delta of (\S+)": lambda args, figure: changed(args, "--delta", figure),
    r"give a share of (?:at least )?(\d+) units.*": lambda args, units: changed(args, "--share-sd", units),
    r"choose fraction_bits of (\d+)": lambda args, bits: changed(args, "--fraction-bits", bits),
    r"leave (\w+) out": lambda args, option: without(args, f"--{option.replace('_', '-')}"),
    r"choose one that takes at least one row .*": lambda args: changed(args, "--support", "1/2"),
    r"choose a support of (\S+)": lambda args, figure: changed(args, "--support", figure),
    r"use at most (\d+) coordinates": lambda args, d: changed(args, "--coordinates", d),
    r"have at least (\d+) rows at each party": lambda args, least: with_rows(args, lambda m: max(m, int(least))),
    r"have at least (\d+) parties": lambda args, parties: changed(args, "--parties", parties),
    r"have ([\d,]+) times the rows .*": lambda args, factor: with_rows(
        args, lambda m: m * int(factor.replace(",", ""))
    ),
    r"accept a tolerance of (\S+)": lambda args, figure: changed(args, "--tolerance", figure),
    r"give --option (\w+)=(\w+).*": with_option,
    r"name it as rounded too \(--rounded (\w+)\)": lambda args, name: [*args, "--rounded", name],
    r"protect its column with joint \(--joint\)": lambda args: [*args, "--joint"],
    r"choose one of (\w+).*": lambda args, name: changed(args, "--sensitive", name),
}


def planned(capsys, arguments):
    code = run(["plan", *arguments, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "ok", found
    assert code == (0 if found["data"]["feasible"] else 1)
    return found["data"]


def followed(arguments, way):
    """The arguments with one suggestion; an option that is repeated replaces the one before."""
    for pattern, change in WAYS.items():
        if (found := re.fullmatch(pattern, way)) is not None:
            return change(arguments, *found.groups())
    pytest.fail(f"no one could follow {way!r}")


def assert_works(capsys, arguments, ways, times):
    for way in ways:
        again = planned(capsys, followed(arguments, way))
        if not again["feasible"]:
            assert times > 1, (way, again["reason"], again["suggestion"])
            assert_works(capsys, followed(arguments, way), again["suggestion"].split(", or "), times - 1)


# Every second one in `make test-more`, a few in `make test`; the two that take longest are not among them.
@pytest.mark.variants(2)
@pytest.mark.parametrize("case", [*CASES[::2], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES[1::2])])
def test_every_suggestion_works(capsys, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.toml").write_text(schema().to_toml())
    arguments = shlex.split(case)
    found = planned(capsys, arguments)
    assert found["feasible"] is False
    assert found["reason"]
    assert found["epsilon_if_others_collude"] is None
    ways = found["suggestion"].split(", or ")
    twice = "--share-sd 5 --support" in case
    assert_works(capsys, arguments, ways, POSSIBLE_TWICE if twice else 1)


def test_the_text_says_the_same_and_the_exit_code_too(capsys):
    assert run(["plan", "--design", "dp-feat", "--rows", "3", "--parties", "1", "--rados", "1"]) == 1
    printed = capsys.readouterr().out
    assert "This query is not possible" in printed
    assert "What would work: have at least" in printed
