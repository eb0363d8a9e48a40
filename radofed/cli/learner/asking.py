"""What the commands that ask within a budget share: a federation over a session, its oracle, and their options."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radobase.printing import in_lines
from radofed.cli.learner.sessions import open_session
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from dpcore.records.schema import Schema
    from learner.federation import BudgetedOracle, Federation
    from learner.journal import SessionSource
    from learner.would_accept import WouldAccept

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
    would_accept: bool,
) -> "Iterator[Federation]":
    """A federation of organisations for one batch, in a session that ends with the block. terms: of `terms_of`.

    ask_again, reuse, would_accept: the options. Raises ConfigurationError without a configuration, or with several of
    the options; with the last QuestionAnsweredError in place of an answer.
    """
    from dpcore.errors import ConfigurationError
    from learner.federation import Federation

    if ask_again + reuse + would_accept > 1:
        raise ConfigurationError("--reuse, --ask-again and --would-accept exclude one another: give one of them")
    if would_accept:
        from learner.questions import Questions

        with asked_source(output, config, timeout_s, None) as source:
            yield Federation(Questions(source.session, timeout_s), schema, **terms)
        return
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


def question_result(found: "Sequence[WouldAccept]", note: str = "") -> Result:
    """What parties said to questions."""
    lines = [sentence for each in found for sentence in each.sentences()]
    enough = all(each.enough for each in found)
    lines += [f"note: {note}"] * bool(note)
    lines.append("enough parties would accept; nothing was charged" if enough else "too few parties would accept it")
    return Result({"questions": [each.to_dict() for each in found], "enough": enough}, in_lines(lines))


def within(federation: "Federation", what: str, epsilon: str | None, delta: str) -> "BudgetedOracle":
    """The oracle of a command within its budget. what: the command. Raises ConfigurationError without an epsilon."""
    from learner.asked_training import budget_of

    return federation.within(*budget_of(what, epsilon, delta))


OF_ASKING = (
    "config",
    "schema",
    "epsilon",
    "ask_again",
    "reuse",
    "would_accept",
    "answer_within_s",
    "expires_after_s",
    "cohort_min",
    "colluders",
    "max_rows",
    "quorum_wait",
    "purpose",
    "timeout_s",
)
"""Parameters of commands that ask, which mean nothing where a saved answer is read."""


def first_given(given: Mapping[str, Any], names: Iterable[str]) -> str:
    """The first of these options that is given, as people write it; empty if none is. given: a command's parameters."""
    found = (name for name in names if given[name] not in (None, False, []))
    return next((f"--{name.replace('_', '-')}" for name in found), "")


def terms_of(
    cohort_min: int | None,
    colluders: int | None,
    max_rows: int | None,
    quorum_wait_s: int | None,
    purpose: str | None,
) -> dict[str, Any]:
    """The options of `learner.requests.Terms` that are given."""
    from learner import asked_training

    given = {"cohort_min": cohort_min, "colluders": colluders, "max_rows": max_rows, "quorum_wait": quorum_wait_s}
    return asked_training.terms_of({**given, "purpose": purpose})


def times_of(answer_within_s: int | None, expires_after_s: int | None) -> dict[str, int]:
    """The times of `learner.requests.Terms` that are given."""
    from learner import asked_training

    return asked_training.times_of({"answer_within_s": answer_within_s, "expires_after_s": expires_after_s})
