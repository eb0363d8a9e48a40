"""`rado party pending | explain | approve | refuse | pause | resume`: people decide what their party answers."""

import time
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import in_lines, local_time
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result, wrapped
from radofed.cli.party_standing import (
    LOOK_EVERY_S,
    NODE_LOOKS_WITHIN_S,
    EpsilonOption,
    NameOption,
    QueriesOption,
    QuestionsOption,
    ReasonOption,
    UntilOption,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import RenderableType

    from parties.approval.deciding import Pending
    from parties.approval.decision_files import DecisionFiles, Waiting
    from parties.approval.decisions import Pauses

T = TypeVar("T")

QueryArgument = Annotated[str, typer.Argument(help="The first digits of the query's id.", metavar="QUERY")]
ForOption = Annotated[
    str, typer.Option("--for", help="query, training, study or questions: what the approval is for.", metavar="WHAT")
]


def pending(
    _output: Output,
    config: ConfigOption,
    full: Annotated[bool, typer.Option("--full", help="Also print every field of each query, as signed.")] = False,
) -> Result:
    """Show the queries that wait for a person's decision, oldest first."""
    from parties.approval.deciding import pending as find_pending
    from parties.approval.decision_files import DecisionFiles
    from parties.approval.decisions import Pauses
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader
    from wire.query_summary import purpose_line, signed_lines
    from wire.study import study_lines

    loaded, now = PartyConfig.load(config), time.time()
    if (files := DecisionFiles.for_others(loaded)) is not None:
        return _pending_in(files, full=full)
    with HistoryReader(loaded) as reader:
        found, pauses = find_pending(reader, now), Pauses(reader.database)
        unanswered = 0 if (paused := pauses.present()) is None else pauses.unanswered(paused)
    data = [
        {
            "query_id": each.shown.query_id.hex(),
            "learner": each.shown.learner,
            "kind": each.shown.kind,
            "asked": each.words,
            "purpose": each.shown.purpose or None,
            "study": None if each.shown.study is None else each.shown.study.to_dict(),
            "costs": None if each.costs is None else each.costs.to_dict(),
            "reasons": list(each.reasons),
            "shown_at_unix_s": each.shown.shown_at_unix_s,
            "answers_due_unix_s": each.answers_due_unix_s,
            "approvals": each.decided.counted,
            "approvals_needed": each.decided.needed,
            **({"signed": [part.to_dict() for part in each.signed]} if full else {}),
        }
        for each in found
    ]
    result = {"pending": data, "unanswered_while_paused": unanswered}
    if full and found:
        lines = []
        for each in found:
            costs = [] if each.costs is None else each.costs.lines()
            what_for = [purpose_line(each.shown.purpose), *study_lines(each.shown.study)]
            lines += [f"query {each}", *what_for, *costs, *signed_lines(each.signed)]
        return Result(result, in_lines([*lines, *unanswered_words(unanswered)]))
    return Result(result, _table(found, unanswered_words(unanswered)))


def unanswered_words(count: int) -> list[str]:
    """A line about queries that came during a pause; none without one."""
    came = "1 query came" if count == 1 else f"{count} queries came"
    words = f"{came} while this party was paused and {'was' if count == 1 else 'were'} not answered"
    return [f"{words}; see `rado ledger history`"] if count else []


def _table(found: "list[Pending]", unanswered: list[str]) -> "RenderableType":
    if not found:
        return in_lines(["no query waits for a decision", *unanswered])
    from wire.query_summary import with_purpose

    header = ("query", "learner", "asked", "may cost", "waits because", "answers due", "approvals")
    rows = []
    for each in found:
        row = (
            each.shown.query_id.hex()[:10],
            each.shown.learner,
            with_purpose(each.words, each.shown.purpose, each.shown.study),
            each.cost_words,
            "; ".join(each.reasons),
            local_time(each.answers_due_unix_s),
            f"{each.decided.counted} of {each.decided.needed}",
        )
        rows.append(row)
    see = "`rado party explain QUERY` shows all that was signed, and what an answer would mean"
    return wrapped(header, rows, "; ".join([see, *unanswered]))


def explain(_output: Output, config: ConfigOption, query: QueryArgument) -> Result:
    """Say what a query asks, what would leave, what it would cost and what would remain, and show all that was signed.

    No value of a row is read for it, and nothing is charged.
    """
    from parties.approval.deciding import explain as explained
    from parties.approval.decision_files import DecisionFiles
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader

    loaded = PartyConfig.load(config)
    if (files := DecisionFiles.for_others(loaded)) is not None:
        waiting = files.find(query)
        return Result(_data_of(waiting), in_lines(_lines_of(waiting)))
    with HistoryReader(loaded) as reader:
        found = explained(loaded, reader, query, time.time())
    return Result(found.to_dict(), in_lines(found.lines()))


def approve(
    output: Output,
    config: ConfigOption,
    query: QueryArgument,
    name: NameOption = "",
    reason: ReasonOption = "",
    covers: ForOption = "query",
    epsilon: EpsilonOption = None,
    until: UntilOption = None,
    questions: QuestionsOption = None,
    queries: QueriesOption = 0,
) -> Result:
    """Approve a query that waits for a decision, or with --for what it is a part of, so that the rest does not wait.

    An approval of a query holds for each attempt that the query allows. Says first what an attempt costs, and the most
    that all of them may cost. Prints every field of what was approved.

    --for training approves all queries of the training that it names, up to its whole cost; --for study those of the
    study that it names, up to --epsilon; --for questions a list of predicates, each once. QUERY may also be the id of
    an approval that another person proposed.
    """
    from parties.approval.giving import Do, Order
    from parties.config import PartyConfig
    from radofed.cli.party_standing import is_approval, order_to_approve, ordered

    if covers != "query":
        order = order_to_approve(covers, epsilon, until, questions, queries)
        return ordered(PartyConfig.load(config), order, query, name, reason, output=output)
    if queries or any(each is not None for each in (epsilon, until, questions)):
        raise ConfigurationError("these options are of an approval of several queries: say of what, with --for")
    if is_approval(loaded := PartyConfig.load(config), query):
        return ordered(loaded, Order(Do.CONFIRM), query, name, reason, output=output)
    return _decided(output, config, query, name, reason, approves=True)


def refuse(
    output: Output, config: ConfigOption, query: QueryArgument, name: NameOption = "", reason: ReasonOption = ""
) -> Result:
    """Refuse a query that waits for a decision, or an approval that another person proposed. One refusal refuses it."""
    from parties.approval.giving import Do, Order
    from parties.config import PartyConfig
    from radofed.cli.party_standing import is_approval, ordered

    if is_approval(loaded := PartyConfig.load(config), query):
        return ordered(loaded, Order(Do.REJECT), query, name, reason)
    return _decided(output, config, query, name, reason, approves=False)


def _decided(output: Output, config: "Path", query: str, name: str, reason: str, *, approves: bool) -> Result:
    from parties.approval.deciding import costs_of, decide
    from parties.approval.decision_files import DecisionFiles
    from parties.approval.decisions import Person
    from parties.config import PartyConfig
    from parties.history.reading import HistoryReader
    from parties.history.studies import same_as
    from wire.query_summary import purpose_line, signed_lines
    from wire.study import study_lines

    loaded, now = PartyConfig.load(config), time.time()
    if (files := DecisionFiles.for_others(loaded)) is not None:
        return _left(output, files, query, name, reason, approves=approves)
    with HistoryReader(loaded) as reader:
        found = reader.find(query)
        costs = costs_of(reader, found.shown, now) if approves else None
        same = same_as(reader, found.shown.study) if approves else []
    if costs is not None:
        # Before the approval is recorded.
        for line in (purpose_line(found.shown.purpose), *study_lines(found.shown.study), *same, *costs.lines()):
            output.note(line)
    query_id = found.shown.query_id.hex()
    decided = decide(loaded, query_id, Person.present(name), approves=approves, reason=reason)
    data = {
        "query_id": query_id,
        "verdict": decided.verdict.value,
        "approvals": decided.counted,
        "approvals_needed": decided.needed,
        "people": [str(each) for each in decided.decisions],
        "purpose": found.shown.purpose or None,
        "study": None if found.shown.study is None else found.shown.study.to_dict(),
        "same_study": same,
        "costs": None if costs is None else costs.to_dict(),
    }
    # What was approved stays beside the approval, on the terminal and in a log of it.
    lines = [f"query {query_id}", *(signed_lines(found.signed) if approves else [])]
    lines += [str(each) for each in decided.decisions]
    lines.append(f"{decided.verdict.value}: {decided.counted} of {decided.needed} approvals")
    return Result(data, in_lines(lines))


def _left(output: Output, files: "DecisionFiles", query: str, name: str, reason: str, *, approves: bool) -> Result:
    """Leave this user's decision for the node, and wait for what it says of it."""
    from parties.approval.decisions import DecisionError
    from wire.query import Query
    from wire.query_summary import purpose_line, signed_lines, signed_parts
    from wire.study import study_lines

    found = files.find(query)
    if approves:
        asked = Query.from_bytes(found.envelope.payload)
        for line in (purpose_line(asked.purpose), *study_lines(asked.study), *found.same_study, *found.costs):
            output.note(line)
    try:
        since = files.leave(found.query_id, approves=approves, name=name, reason=reason)
    except OSError as error:
        raise DecisionError(
            f"{files.directory}: {error.strerror}; ask the operator to let you write into this directory"
        ) from error
    lines = [f"query {found.query_id.hex()}"]
    lines += signed_lines(signed_parts(found.envelope.payload)) if approves else []
    data = {"query_id": found.query_id.hex(), "approves": approves}
    end = time.monotonic() + NODE_LOOKS_WITHIN_S
    while time.monotonic() < end:
        if (outcome := files.outcome(found.query_id, since)) is not None:
            counted, words = outcome
            if not counted:
                raise DecisionError(words)
            return Result({**data, "counted": True, "outcome": words}, in_lines([*lines, words]))
        time.sleep(LOOK_EVERY_S)
    words = "left for the node, which did not look yet; it counts when it does, if the query still waits then"
    return Result({**data, "counted": None, "outcome": words}, in_lines([*lines, words]))


def _pending_in(files: "DecisionFiles", *, full: bool) -> Result:
    found = files.waiting()
    data = [_data_of(each, full=full) for each in found]
    if not found:
        return Result({"pending": data}, "no query waits for a decision")
    if full:
        return Result({"pending": data}, in_lines([line for each in found for line in _lines_of(each)]))
    from wire.query import Query
    from wire.query_summary import with_purpose

    header = ("query", "learner", "asked", "may cost", "waits because", "answers due", "approvals needed")
    rows = []
    for each, shown in zip(found, data, strict=True):
        due, why = local_time(each.answers_due_unix_s), "; ".join(each.reasons)
        study = Query.from_bytes(each.envelope.payload).study
        asked = with_purpose(shown["asked"], shown["purpose"] or "", study)
        rows.append((each.query_id.hex()[:10], shown["learner"], asked, shown["cost"], why, due, str(each.needed)))
    return Result({"pending": data}, wrapped(header, rows, "`rado party explain QUERY` shows all that was signed"))


def _data_of(waiting: "Waiting", *, full: bool = True) -> "dict[str, Any]":
    from wire.query import Query
    from wire.query_summary import signed_parts

    query = Query.from_bytes(waiting.envelope.payload)
    return {
        "query_id": waiting.query_id.hex(),
        "learner": query.learner,
        "kind": query.kind.name,
        "asked": query.words,
        "purpose": query.purpose or None,
        "study": None if query.study is None else query.study.to_dict(),
        "reasons": list(waiting.reasons),
        "cost": waiting.cost,
        "cost_lines": list(waiting.costs),
        "same_study": list(waiting.same_study),
        "answers_due_unix_s": waiting.answers_due_unix_s,
        "approvals_needed": waiting.needed,
        **({"signed": [part.to_dict() for part in signed_parts(waiting.envelope.payload)]} if full else {}),
    }


def _lines_of(waiting: "Waiting") -> list[str]:
    from parties.approval.deciding import ways_to_decide
    from wire.query import Query
    from wire.query_summary import QuerySummary, signed_lines, signed_parts

    asked = QuerySummary.of(Query.from_bytes(waiting.envelope.payload))
    return [
        f"query {waiting.query_id.hex()}",
        *asked.lines(),
        *waiting.same_study,
        *(waiting.costs or (f"cost of an attempt, as this party's node counts it: {waiting.cost}",)),
        *(f"waits because {reason}" for reason in waiting.reasons),
        f"answers due {local_time(waiting.answers_due_unix_s)}; {waiting.needed} approvals needed",
        *ways_to_decide(waiting.query_id, asked),
        *signed_lines(signed_parts(waiting.envelope.payload)),
    ]


def pause(_output: Output, config: ConfigOption, name: NameOption = "", reason: ReasonOption = "") -> Result:
    """Let this party answer, charge and send nothing until it is resumed, also after a restart.

    What was charged before is sent once it is resumed, if its query is still open. Queries that come meanwhile are in
    the history (`rado ledger history`).
    """
    from parties.approval.decisions import Person

    person = Person.present(name)
    changed = _with_pauses(config, lambda pauses: pauses.pause(person, reason, time.time()))
    return Result({"paused": True, "changed": changed}, "paused" if changed else "it was paused before")


def resume(_output: Output, config: ConfigOption, name: NameOption = "") -> Result:
    """Let this party answer again. Says how many queries came meanwhile."""
    from parties.approval.decisions import Person

    person = Person.present(name)

    def resumed(pauses: "Pauses") -> tuple[bool, int]:
        ended = pauses.resume(person, time.time())
        return ended is not None, 0 if ended is None else pauses.unanswered(ended)

    changed, unanswered = _with_pauses(config, resumed)
    data = {"paused": False, "changed": changed, "unanswered": unanswered}
    return Result(data, in_lines(["resumed" if changed else "it was not paused", *unanswered_words(unanswered)]))


def _with_pauses(config: "Path", function: "Callable[[Pauses], T]") -> "T":
    from parties.approval.decisions import Pauses
    from parties.config import PartyConfig
    from parties.history.reading import open_history

    database = open_history(PartyConfig.load(config))
    try:
        return function(Pauses(database))
    finally:
        database.close()
