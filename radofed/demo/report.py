"""The demo's printed report: for each part its test errors, what is protected, and its cost."""

from rich.console import Group, RenderableType
from rich.table import Table

from dpcore.numbers.rationals import rounded_up
from radofed.demo.rados import RadosResult
from radofed.demo.run import DemoResult
from radofed.demo.whole_records import ESTIMATOR, WholeRecordsResult

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
    others = f" and {asked.colluders} of the {len(asked.party_rows) - 1} other {parties}" if asked.colluders else ""
    learner, collusion = rounded_up(stated.epsilon), rounded_up(stated.epsilon_if_others_collude)
    sentences: list[RenderableType] = [
        (
            f"The composition of all {asked.rounds} answers is differentially private for one whole record, replaced "
            f"by any other that the schema allows. At delta {stated.delta!r}, epsilon is at most {learner} against the "
            f"learner alone, and {collusion} if the coordinator{others} work{'' if others else 's'} with it."
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
