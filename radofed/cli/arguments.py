"""Options that several commands read in the same way."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from radofed.cli.output import Output

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


Rados = Annotated[
    int | None,
    typer.Option(
        help="Number of rados; not for moments. Default for dp-feat: as many as --epsilon allows, at most 1,000."
    ),
]
Design = Annotated[str, typer.Option(help="plain, dp-feat, fixed-support, gaussian or moments.")]
EpsilonPerRado = Annotated[
    str | None,
    typer.Option(help="dp-feat: epsilon of one rado, by truncation (Algorithm 2); exact. Default: no truncation."),
]
Rounded = Annotated[
    list[str] | None,
    typer.Option(help="dp-feat: a sensitive feature that is a number, to be rounded to a sign; repeatable."),
]
Support = Annotated[
    str | None,
    typer.Option(
        help="fixed-support, gaussian: the fraction of its records that a party draws for a rado; exact. Default: 1/2 "
        "for fixed-support, uniform signatures for gaussian."
    ),
]
EdgeWeight = Annotated[
    str | None,
    typer.Option(help="moments: the precision of edges relative to products; exact. Default: chosen by R."),
]
FractionBits = Annotated[
    int | None,
    typer.Option(
        help="Binary digits after the point, in an edge's coordinates. Default: 16; for moments 10; for plain and "
        "dp-feat without --joint those with the fewest ciphertexts, at most 16."
    ),
]
MapFile = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="moments, gaussian, fixed-support with --epsilon: a feature map in the columns' units, TOML or JSON; "
        "records are mapped before they are clipped.",
    ),
]
KeyBits = Annotated[int, typer.Option(help="Size of the Paillier modulus, in bits.")]

CohortMin = Annotated[
    int | None, typer.Option(help="Fewest parties in a cohort. Default: all but one, and at least colluders + 2.")
]
Colluders = Annotated[
    int | None, typer.Option(help="Number of parties assumed to collude. Default: 1; 0 if there are only two parties.")
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        help="Most rows in a cohort. Default: four times what each party last stated in an answer, or before the first "
        "what the roster states, at least 1,000,000."
    ),
]
QuorumWait = Annotated[
    int | None,
    typer.Option(
        "--quorum-wait",
        metavar="SECONDS",
        help="Longest wait for further parties once enough for a cohort have accepted, and again once enough are "
        "ready. Default: as long as the phase lasts.",
    ),
]
Purpose = Annotated[
    str | None,
    typer.Option(
        help="What the answer is for, such as a study and its number: signed, and shown to whoever decides at a party. "
        "At most 200 characters."
    ),
]
HoldBack = Annotated[
    str | None,
    typer.Option(
        help="Share of its rows that each party holds back, such as 0.2. Each party's own key chooses them. Only the "
        "others are asked about, and evaluate asks about those that were held back."
    ),
]
Retries = Annotated[
    int, typer.Option(min=0, help="Attempts to start without asking after one is lost; parties charge each.")
]
AnswerWithinS = Annotated[
    int | None,
    typer.Option(help="Time for parties, and for people who decide there, to answer, in seconds. Default: 600."),
]
ExpiresAfterS = Annotated[int | None, typer.Option(help="Time until the query expires, in seconds. Default: 86400.")]
Timeout = Annotated[
    float | None, typer.Option(help="Longest wait, in seconds; the query continues. Default: no limit.")
]

AskAgain = Annotated[
    bool, typer.Option("--ask-again", help="Ask, and be charged, again if the same was asked before and has an answer.")
]
WouldAccept = Annotated[
    bool,
    typer.Option(
        "--would-accept",
        help="Ask the parties whether they would accept all of it, over how many rows. Costs nothing.",
    ),
]
Reuse = Annotated[
    bool, typer.Option("--reuse", help="Use the answer to the same question that is on disk; nothing is asked.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label", help="The label's column. `schema infer` takes the last one if it is left out."),
]
Positive = Annotated[
    list[str] | None, typer.Option(help="A positive value of the label; repeatable, one value a time.")
]

LISTED = 20
"""How many queries a table has, unless --limit says otherwise."""

Limit = Annotated[
    int | None,
    typer.Option(min=0, help=f"Most queries to show, newest first. Default: {LISTED}; all with --format json."),
]

OldEstimator = Annotated[str | None, typer.Option("--learner", hidden=True)]
"""The former spelling of --estimator, accepted in this version."""


def estimator_option(output: "Output", estimator: str | None, learner: str | None) -> str | None:
    """The value of --estimator, or of the old --learner, with a note. Raises ConfigurationError if both are given."""
    from dpcore.errors import ConfigurationError

    if learner is None:
        return estimator
    if estimator is not None:
        raise ConfigurationError("--estimator and its former spelling --learner are both given: leave --learner out")
    output.note("note: --learner is now --estimator; the next version will not accept --learner")
    return learner
