"""The demo's last words: a table that a person can read."""

from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table

from radofed.demo.run import DemoResult


def report(result: DemoResult) -> Group:
    """Test errors beside what they are to be compared with, what travelled, how long it took, what is protected."""
    data = result.to_dict()
    return Group(
        "",
        _errors(data),
        "",
        _facts(data),
        "",
        "What the release protects, and what it does not:",
        *(Padding(f"- {sentence}", (0, 0, 0, 2), expand=False) for sentence in result.sentences),
    )


def _errors(data: dict[str, Any]) -> Table:
    errors = data["test_error"]
    table = Table(title=f"Test error on {data['test_rows']} held-out rows", title_justify="left", min_width=72)
    table.add_column("learner")
    table.add_column("sees")
    table.add_column("error", justify="right")
    federated = f"{data['rados']['n']} encrypted sums of {data['parties']} parties"
    lines = [
        ("mean-variance", federated, "mean_variance"),
        ("RadoBoost", federated, "radoboost"),
        ("logistic regression", "all rows in one place", "logistic_pooled"),
        ("logistic regression", "the best single party's own rows", "best_single_party"),
        ("logistic regression", "the median single party's own rows", "median_single_party"),
        ("majority class", "labels only", "majority"),
    ]
    for name, sees, key in lines:
        table.add_row(name, sees, f"{100 * errors[key]:.1f} %", style="bold" if key == "mean_variance" else None)
    return table


def _facts(data: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    sizes = ", ".join(f"{name} {rows}" for name, rows in data["rows_by_party"].items())
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in data["seconds_by_phase"].items())
    table.add_row("rows", sizes)
    table.add_row("query", f"{data['rados']['n']} rados of {data['rados']['d']} coordinates, design {data['design']}")
    table.add_row("each party sent", f"{data['upload_bytes_per_party']:,} bytes, encrypted, once")
    table.add_row("seconds", f"{phases}; {data['seconds']:.1f} in all")
    if data["directory"] is not None:
        table.add_row("kept in", str(data["directory"]))
    return table
