"""What the commands that ask within a budget share: a federation over a session, its oracle, and their options."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radofed.cli.learner.sessions import open_session
from radofed.cli.output import Output

if TYPE_CHECKING:
    from dpcore.records.schema import Schema
    from learner.federation import BudgetedOracle, Federation
    from learner.journal import SessionSource

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


@contextmanager
def asked_federation(
    output: Output,
    config: Path | None,
    schema: "Schema",
    terms: dict[str, Any],
    timeout_s: float | None,
    *,
    ask_again: bool,
    reuse: bool,
) -> "Iterator[Federation]":
    """A federation of organisations for one batch, in a session that ends with the block. terms: of `terms_of`.

    ask_again, reuse: the options. Raises ConfigurationError without a configuration, or with both options.
    """
    from dpcore.errors import ConfigurationError
    from learner.federation import Federation

    if ask_again and reuse:
        raise ConfigurationError("--reuse asks nothing and --ask-again asks: give one of the two")
    with asked_source(output, config, timeout_s, None, asks_again=ask_again, reuses=reuse, asks=not reuse) as source:
        yield Federation(source, schema, **terms)


@contextmanager
def asked_source(
    output: Output,
    config: Path | None,
    timeout_s: float | None,
    journal: Path | None,
    *,
    asks_again: bool = False,
    reuses: bool = False,
    asks: bool = True,
) -> "Iterator[SessionSource]":
    """The answers of organisations, in a session that ends with the block.

    journal, asks_again, reuses, asks: see learner.journal. Raises ConfigurationError without a configuration.
    """
    from dpcore.errors import ConfigurationError
    from learner.journal import SessionSource
    from learner.session import check_timeout

    check_timeout(timeout_s)
    if config is None:
        raise ConfigurationError("this command queries the parties: give the learner's --config")
    with open_session(config, output) as session:
        yield SessionSource(
            session,
            journal,
            asks_again=asks_again,
            reuses=reuses,
            asks=asks,
            timeout_s=timeout_s,
            note=output.note,
        )


def within(federation: "Federation", what: str, epsilon: str | None, delta: str) -> "BudgetedOracle":
    """The oracle of a command within its budget. what: the command. Raises ConfigurationError without an epsilon."""
    from learner.asked_training import budget_of

    return federation.within(*budget_of(what, epsilon, delta))


def terms_of(
    cohort_min: int | None,
    colluders: int | None,
    max_rows: int | None,
    quorum_wait_s: int | None,
) -> dict[str, Any]:
    """The options of `learner.requests.Terms` that are given."""
    from learner import asked_training

    given = {"cohort_min": cohort_min, "colluders": colluders, "max_rows": max_rows, "quorum_wait": quorum_wait_s}
    return asked_training.terms_of(given)
