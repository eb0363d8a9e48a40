"""The demo from end to end: data, then whole records by `newton`, then rados by DP-FEAT, each in its own federation."""

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from dpcore.accounting.words import coalition, figures
from radofed.demo.federation import Clock, Note, Shared, ended_by_signals
from radofed.demo.options import DemoOptions
from radofed.demo.parts import (
    ESTIMATOR,
    RadosResult,
    WholeRecordsResult,
    plan_rados,
    run_rados,
    run_whole_records,
    why_not,
)
from radofed.demo.tables import digits, own_file, patients


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo."""

    whole_records: WholeRecordsResult | None
    """None if they were left out; left_out then says why."""
    left_out: str | None
    rados: RadosResult
    own_data: bool
    """Whether both parts used the user's table."""
    directory: Path | None
    """The kept files, None if they were deleted."""

    def to_dict(self) -> dict[str, Any]:
        """The `data` of `rado demo --format json`: the rados, and the whole records under their own keys."""
        whole = None if self.whole_records is None else self.whole_records.to_dict()
        left_out = {"whole_records": whole, "whole_records_left_out": self.left_out}
        return {**self.rados.to_dict(), "directory": self.directory, **left_out}


def run_demo(options: DemoOptions, note: Note) -> DemoResult:
    """Run the demo. note: progress callback, one sentence a call.

    When this returns or raises, every process that it started has ended, and its files are deleted unless
    `options.keep` is set. Raises ConfigurationError, before anything starts, if the options cannot be demonstrated,
    and ChildError if a node fails.
    """
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        directory = options.keep or Path(tempfile.mkdtemp(prefix="rado-demo-"))
        if options.keep is None:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        else:
            directory.mkdir(parents=True, mode=0o700)
        return _run(options, directory, note)


def _run(options: DemoOptions, directory: Path, note: Note) -> DemoResult:
    clock, rados_clock = Clock(), Clock()
    with rados_clock.phase("data and keys"):
        shared = _rados_data(options, directory / "rados" / "data")
        plan = plan_rados(shared, options, note)
    with clock.phase("data and keys"):
        if options.data is None:
            records = Shared.of(patients(directory / "whole-records" / "data", options.parties))
        else:
            records = shared
    whole, left_out = None, why_not(records)
    if left_out is None:
        note(f"1. whole records by newton; parties and their rows: {records.rows_words()}")
        whole = run_whole_records(records, directory / "whole-records", clock, note)
    else:
        note(f"1. whole records are left out: {left_out}")
    note(f"2. rados; parties and their rows: {shared.rows_words()}")
    rados = run_rados(plan, directory / "rados", rados_clock, note)
    kept = directory if options.keep is not None else None
    return DemoResult(whole, left_out, rados, options.data is not None, kept)


def _rados_data(options: DemoOptions, directory: Path) -> Shared:
    if options.data is None or options.schema is None:
        return Shared.of(digits(directory, options.parties))
    return Shared.of(own_file(directory, options.data, options.schema, options.parties, options.split))


# The demo's printed report: for each part its test errors, what is protected, and its cost.

LIMITS = (
    "Whole records are not protected here: anyone who knows a record's other columns can read its value from the "
    "release."
)
SAME_ROWS = (
    "Both parts queried the same rows. The figures of the first hold for its own answers; in composition with the "
    "rados, there is no bound for whole records."
)
FULL_STATEMENTS = "Assumptions of these statements: docs/threat-model.md; in full: `rado demo --format json`."


def report(result: DemoResult) -> Group:
    """Test errors with baselines, what is protected and against whom, bytes sent, and seconds."""
    parts = _left_out(result) if result.whole_records is None else _whole_records(result.whole_records, result.own_data)
    parts += ["", *_rados(result.rados), ""]
    if result.whole_records is not None and result.own_data:
        parts.append(SAME_ROWS)
    parts.append(FULL_STATEMENTS)
    if result.directory is not None:
        parts += [f"Keys, configurations, logs and models are in {result.directory}"]
    return Group("", *parts)


def _left_out(result: DemoResult) -> list[RenderableType]:
    return [f"Whole records are not shown: {result.left_out}."]


def _whole_records(whole: WholeRecordsResult, own_data: bool) -> list[RenderableType]:
    party, parties, people = ("party", "parties", "rows") if own_data else ("hospital", "hospitals", "patients")
    asked = whole.asked
    title = f"Whole records protected: test error on {whole.compared.test_rows} held-out {people}"
    errors = _errors(
        title,
        [
            (ESTIMATOR, f"{asked.rounds} encrypted sums of {len(whole.rows)} {parties}, with noise", whole.error),
            ("logistic regression", "all rows in one place, without privacy", whole.compared.logistic_pooled),
            ("logistic regression", f"the best single {party}'s own rows", whole.compared.best_single_party),
            ("majority class", "labels only", whole.compared.majority),
        ],
    )
    facts = [
        ("rows", _rows(whole.rows) + ("" if own_data else ", all synthetic")),
        ("queries", f"moments once, then {asked.rounds - 1} gradients, of {whole.coordinates} coordinates"),
        (f"each {party} sent", f"{asked.upload_bytes_per_party:,} bytes in total, encrypted"),
        ("seconds", _seconds(whole.phases_s)),
    ]
    return [errors, "", *_whole_records_privacy(whole, parties), "", _facts(facts)]


def _whole_records_privacy(whole: WholeRecordsResult, parties: str) -> list[RenderableType]:
    stated, asked = whole.statement, whole.asked
    assert stated.epsilon is not None
    assert stated.epsilon_if_others_collude is not None
    assert stated.delta is not None
    others = f"{asked.colluders} of the {len(asked.party_rows) - 1} other {parties}" if asked.colluders else ""
    said = figures(stated.epsilon, stated.epsilon_if_others_collude, stated.delta, coalition(others))
    sentences: list[RenderableType] = [
        (
            f"The composition of all {asked.rounds} answers is differentially private for one whole record, replaced "
            f"by any other that the schema allows: {said}."
        )
    ]
    if asked.attempts > asked.rounds:
        sentences.append(
            "A round was repeated after a failed attempt; the figure under collusion counts that attempt too."
        )
    return [*sentences, *([] if whole.warning is None else [f"Warning: {whole.warning}"])]


def _rados(rados: RadosResult) -> list[RenderableType]:
    data = rados.to_dict()
    found = data["test_error"]
    sums = f"{data['rados']['n']} encrypted sums of {data['parties']} parties"
    name = "Plain rados" if rados.sensitive is None else f"Rados by DP-FEAT, for {rados.sensitive!r}"
    errors = _errors(
        f"{name}: test error on {data['test_rows']} held-out rows",
        [
            ("mean-variance", sums, found["mean_variance"]),
            ("RadoBoost", sums, found["radoboost"]),
            ("logistic regression", "all rows in one place, without privacy", found["logistic_pooled"]),
            ("logistic regression", "the best single party's own rows", found["best_single_party"]),
            ("logistic regression", "the median single party's own rows", found["median_single_party"]),
            ("majority class", "labels only", found["majority"]),
        ],
    )
    facts = [
        ("rows", _rows(rados.rows)),
        ("query", f"{data['rados']['n']} rados of {data['rados']['d']} coordinates, design {data['design']}"),
        ("each party sent", f"{data['upload_bytes_per_party']:,} bytes, encrypted, once"),
        ("seconds", _seconds(rados.phases_s)),
    ]
    limits = [] if rados.sensitive is None else [LIMITS]
    return [errors, "", " ".join([*rados.bound_in_words(), *limits]), "", _facts(facts)]


def _errors(title: str, lines: list[tuple[str, str, float]]) -> Table:
    """A table of test errors; the first line, the result of this part, is bold."""
    table = Table(title=title, title_justify="left", min_width=74)
    table.add_column("estimator")
    table.add_column("sees")
    table.add_column("error", justify="right")
    for number, (name, sees, error) in enumerate(lines):
        table.add_row(name, sees, f"{100 * error:.1f} %", style=None if number else "bold")
    return table


def _facts(lines: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(*line)
    return table


def _rows(rows: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in rows.items())


def _seconds(phases_s: dict[str, float]) -> str:
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases_s.items())
    return f"{phases}; {sum(phases_s.values()):.1f} in total"
