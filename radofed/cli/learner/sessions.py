"""What the commands that ask within a budget share: a federation over a session, and their options."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.declared import declarations, values_of
from radobase.failure import EXIT_FAILED
from radobase.printing import in_lines
from radofed.cli.output import Output, Result
from wire.request_fields import AskedTerms, AskOptions

if TYPE_CHECKING:
    from dpcore.records.held_back import HeldBack
    from dpcore.records.schema import Schema
    from dpcore.statistics.adaptive import Adaptive
    from learner.federation import Federation
    from learner.journal import SessionSource
    from learner.progress import WouldAccept
    from learner.session import Session


def open_session(config: Path, output: Output) -> "Session":
    """A session of the learner that a file configures.

    It shows the progress of queries on standard error, and says so when the coordinator is out of reach.
    """
    from learner.config import LearnerConfig
    from learner.progress import command_display
    from learner.session import Session

    return Session(LearnerConfig.load(config), note=output.note, progress=command_display())


@contextmanager
def asked_federation(
    output: Output, options: AskOptions, schema: "Schema", held_back: "HeldBack | None" = None
) -> "Iterator[Federation]":
    """A federation of organisations for one batch, in a session that ends with the block.

    Raises ConfigurationError without a configuration, or with several of --reuse, --ask-again and --would-accept; with
    the last QuestionAnsweredError in place of an answer.
    """
    from dpcore.errors import ConfigurationError
    from learner.federation import Federation
    from learner.questions import Questions

    terms = {**values_of(options, AskedTerms), "held_back": held_back}
    if options.ask_again + options.reuse + options.would_accept > 1:
        raise ConfigurationError("--reuse, --ask-again and --would-accept exclude one another: give one of them")
    with asked_source(output, options, None, asks=not options.reuse) as source:
        answers = Questions(source.session, options.timeout_s, only_asks=True) if options.would_accept else source
        yield Federation(answers, schema, **terms)


@contextmanager
def asked_source(
    output: Output, options: AskOptions, journal: Path | None, *, asks: bool = True
) -> "Iterator[SessionSource]":
    """The answers of organisations, in a session that ends with the block.

    journal, asks: see learner.journal. Raises ConfigurationError without a configuration.
    """
    from dpcore.errors import ConfigurationError
    from learner.journal import SessionSource
    from learner.session import check_timeout

    check_timeout(options.timeout_s)
    if options.config is None:
        raise ConfigurationError("this command queries the parties: give the learner's --config")
    with open_session(options.config, output) as session:
        yield SessionSource(
            session,
            journal,
            asks_again=options.ask_again,
            reuses=options.reuse,
            asks=asks,
            timeout_s=options.timeout_s,
            note=output.note,
        )


def split_of(questions: int | None) -> "Adaptive | None":
    """A series of so many questions, each about rows of its own; None for a question that no answer chose."""
    from dpcore.statistics.adaptive import Adaptive, Way

    return None if questions is None else Adaptive(questions, Way.SPLIT)


def question_result(found: "Sequence[WouldAccept]", note: str = "") -> Result:
    """What parties said to questions. The exit code is 1 if too few would accept one."""
    from learner.progress import answers_in_words

    lines = answers_in_words(found)
    enough = all(each.enough for each in found)
    lines += [f"note: {note}"] * bool(note)
    lines.append(
        "enough parties would accept, if their people do, where people decide; nothing was charged"
        if enough
        else "too few parties would accept it"
    )
    data = {"questions": [each.to_dict() for each in found], "enough": enough}
    return Result(data, in_lines(lines), exit_code=0 if enough else EXIT_FAILED)


ASKING = tuple(field.name for field in declarations(AskOptions) if field.name != "delta")
"""Options of commands that ask, which mean nothing where a saved answer is read."""
