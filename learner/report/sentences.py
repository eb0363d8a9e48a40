"""What a learner's report says in words about protection; each sentence names its place in docs/threat-model.md."""

from learner.report.gathering import Report
from radobase.report import sentences as shared
from radobase.report.sentences import Sentence


def assumptions(report: Report) -> list[Sentence]:
    """What the figures take for granted, beside what the statement says itself."""
    return [
        *([shared.NOISE_KEPT] if report.statement.scope in ("record", "joint") else []),
        shared.GOOD_COMPUTERS,
        shared.CRYPTOGRAPHY,
    ]


def not_protected(report: Report) -> list[Sentence]:
    """What no figure of the report covers."""
    what = "this model" if report.model is not None else "this release"
    return [
        Sentence(
            f"What other answers say about the same rows: the figures are those of {what} alone. Each party's ledger "
            "counts all answers.",
            "P5",
        ),
        shared.SEVERAL_ROWS,
        shared.GROUPS,
        Sentence(
            "Who took part, when, with how many rows, and what was asked: the parties and the coordinator know it, and "
            "this page repeats it.",
            "4.6",
        ),
        shared.WRONG_RESULTS,
    ]
