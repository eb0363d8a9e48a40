"""`rado party approvals | revoke | delegate`, and what is approved with --for: a training, a study, a list."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import in_lines, local_time, moment
from radobase.reading import FileKind, read_text, with_remedy
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from parties.approval.decision_files import DecisionFiles
    from parties.approval.giving import Order
    from parties.config import PartyConfig

# A node looks for decisions between two polls, which take a few seconds.
NODE_LOOKS_WITHIN_S, LOOK_EVERY_S = 20.0, 0.2

NameOption = Annotated[str, typer.Option("--name", help="Who decides; the policy may ask for it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why. It is kept here and not sent.")]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", help="When it ends, such as 2026-12-24 or 2026-12-24T17:00.", metavar="TIME"),
]
EpsilonOption = Annotated[
    str | None,
    typer.Option("--epsilon", help="The most that all of it may cost, in place of what was announced.", metavar="N"),
]
QuestionsOption = Annotated[
    Path | None,
    typer.Option("--questions", help="A file with one predicate a line; # begins a comment.", metavar="FILE"),
]


QueriesOption = Annotated[
    int, typer.Option("--queries", help="The most queries of a study; 0 for as many as fit in --epsilon.", metavar="N")
]


def order_to_approve(
    covers: str, epsilon: str | None, until: str | None, questions: Path | None, queries: int
) -> "Order":
    """What the options of `rado party approve --for` say. Raises ConfigurationError."""
    from parties.approval.giving import Do, Order
    from parties.approval.standing import Covers

    known = [each.value for each in Covers]
    if covers not in known:
        raise ConfigurationError(f"--for {covers!r}: an approval is for {' or '.join(known)}")
    lines: tuple[str, ...] = ()
    if questions is not None:
        text = read_text(
            questions, FileKind(with_remedy("give a file with a question on each line"), limit_bytes=1 << 20)
        )
        stripped = (line.partition("#")[0].strip() for line in text.splitlines())
        lines = tuple(line for line in stripped if line)
    end = None if until is None else moment(until, 0.0)
    return Order(Do.APPROVE, Covers(covers), epsilon, end, lines, queries)


def ordered(
    config: "PartyConfig", order: "Order", prefix: str, name: str, reason: str, *, output: Output | None = None
) -> Result:
    """Carry an order out, or leave it for the node, and say what came of it.

    output: where to say first what is approved, before it is recorded.
    """
    from parties.approval.decision_files import DecisionFiles
    from parties.approval.decisions import Person
    from parties.approval.giving import do, terms_at

    files = DecisionFiles.for_others(config)
    if output is not None:
        for line in terms_at(config, order, prefix, files):
            output.note(line)
    if files is not None:
        return _left(files, order, prefix, name, reason)
    done, now = do(config, order, prefix, Person.present(name), reason), time.time()
    lines = [] if done.approval is None else done.approval.lines(now)
    data: dict[str, Any] = {"outcome": done.words, "counted": True}
    data |= {} if done.approval is None else done.approval.to_dict(now)
    return Result(data, in_lines([*lines, done.words]))


def _left(files: "DecisionFiles", order: "Order", prefix: str, name: str, reason: str) -> Result:
    """Leave an order for the node, and wait for what it says of it."""
    from parties.approval.decisions import DecisionError
    from parties.approval.giving import NO_SUBJECT, Do

    match order.do:
        case Do.APPROVE:
            subject = files.find(prefix).query_id
        case Do.CONFIRM | Do.REJECT | Do.REVOKE:
            subject = bytes.fromhex(_shown(files, prefix)["approval_id"])
        case _:
            subject = NO_SUBJECT
    try:
        since = files.leave(subject, approves=True, name=name, reason=reason, order=order.to_dict())
    except OSError as error:
        raise DecisionError(
            f"{files.directory}: {error.strerror}; ask the operator to let you write into this directory"
        ) from error
    end = time.monotonic() + NODE_LOOKS_WITHIN_S
    while time.monotonic() < end:
        if (outcome := files.outcome(subject, since)) is not None:
            counted, words = outcome
            if not counted:
                raise DecisionError(words)
            return Result({"counted": True, "outcome": words}, words)
        time.sleep(LOOK_EVERY_S)
    words = "left for the node, which did not look yet; it counts when it does, if it still can then"
    return Result({"counted": None, "outcome": words}, words)


def _shown(files: "DecisionFiles", prefix: str) -> dict[str, Any]:
    found = [each for each in files.approvals() if prefix and each["approval_id"].startswith(prefix.lower())]
    if len(found) != 1:
        what = "no approval begins" if not found else f"{len(found)} approvals begin"
        raise ConfigurationError(f"{what} with {prefix!r}; see `rado party approvals`")
    return found[0]


def is_approval(config: "PartyConfig", prefix: str) -> bool:
    """Whether digits begin the id of an approval of several queries, as far as this user can see."""
    from parties.approval.decision_files import DecisionFiles
    from parties.approval.giving import is_approval as is_own

    if (files := DecisionFiles.for_others(config)) is not None:
        return any(prefix and each["approval_id"].startswith(prefix.lower()) for each in files.approvals())
    return is_own(config, prefix)


def approvals(
    _output: Output,
    config: ConfigOption,
    every: Annotated[bool, typer.Option("--all", help="Also those that ended or expired.")] = False,
) -> Result:
    """Show the approvals of several queries, with what each lets through, its uses and who gave it; and delegates."""
    from parties.approval.decision_files import DecisionFiles
    from parties.approval.giving import delegations, shown_approvals
    from parties.config import PartyConfig

    loaded, now = PartyConfig.load(config), time.time()
    names = []
    if (files := DecisionFiles.for_others(loaded)) is not None:
        data = files.approvals()
    else:
        data = shown_approvals(loaded, now)
        names = [each for each in delegations(loaded) if every or each.holds(now)]
    shown = [each for each in data if every or each["in_force"] or each["state"].endswith("approvals")]
    lines = []
    for each in shown:
        people = [_act_words(act) for act in each["people"]]
        used = f"{each['attempts_charged']} attempts charged, {each['attempts_reserved']} reserved"
        lines += [f"approval {each['approval_id']}: {each['state']}", *(f"  {line}" for line in each["words"])]
        lines += [f"  {line}" for line in each.get("same_study", ())]
        lines += [f"  used by {len(each['queries'])} queries: {used}", *(f"  {line}" for line in people)]
    lines = lines or ["no approval of several queries is in force or proposed"]
    for one in names:
        ended = "" if one.holds(now) else ", over"
        lines.append(f"{one.user} decides in place of {one.acts_for} until {local_time(one.until_unix_s)}{ended}")
    return Result({"approvals": shown, "delegates": [vars(one) for one in names]}, in_lines(lines))


def _act_words(act: dict[str, Any]) -> str:
    from parties.approval.decisions import Person

    reason = f": {act['reason']}" if act["reason"] else ""
    return f"{act['kind']} by {Person(act['user'], act['name'], act['acts_for'])}{reason}"


def revoke(
    _output: Output,
    config: ConfigOption,
    approval: Annotated[str, typer.Argument(help="The first digits of the approval's id.", metavar="APPROVAL")],
    name: NameOption = "",
    reason: ReasonOption = "",
) -> Result:
    """End an approval of several queries: nothing more is accepted, and nothing reserved is charged, under it."""
    from parties.approval.giving import Do, Order
    from parties.config import PartyConfig

    return ordered(PartyConfig.load(config), Order(Do.REVOKE), approval, name, reason)


def delegate(
    _output: Output,
    config: ConfigOption,
    user: Annotated[str, typer.Argument(help="A user of this machine.", metavar="USER")] = "",
    until: UntilOption = None,
    end: Annotated[bool, typer.Option("--end", help="End the delegation, in place of naming somebody.")] = False,
    reason: ReasonOption = "",
) -> Result:
    """Let another user decide in your place until a moment within 92 days. What they decide counts as your decision.

    Only a user whom the policy's [approval] lists names a delegate, who must be another user of this machine.
    """
    from parties.approval.giving import Do, Order
    from parties.config import PartyConfig

    if end == bool(user):
        raise ConfigurationError("name a user and --until, or give --end alone")
    until_unix_s = None if until is None else moment(until, 0.0)
    order = Order(Do.UNDELEGATE) if end else Order(Do.DELEGATE, user=user, until_unix_s=until_unix_s)
    return ordered(PartyConfig.load(config), order, "", "", reason)


def notify_test(_output: Output, config: ConfigOption) -> Result:
    """Run the command of [notify] once, with a made-up message, and say how it ended."""
    from parties.approval.notifying import run_command, test_message
    from parties.config import PartyConfig

    loaded = PartyConfig.load(config)
    if loaded.notify is None:
        raise ConfigurationError(f"{config}: has no section [notify]")
    content = test_message(loaded.name, loaded.federation, "somebody ran rado party notify-test")
    begun = time.monotonic()
    run_command(loaded.notify, json.dumps(content).encode())
    seconds = time.monotonic() - begun
    return Result({"seconds": seconds}, f"{loaded.notify.command[0]} ended well after {seconds:.1f} s")
