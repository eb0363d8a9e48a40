"""`rado learner`: make a key, send queries, follow them and fetch their releases."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radobase.printing import amount, columns, duration, in_lines, listed, local_time
from radofed.cli.framework import LISTED, ConfigOption, Limit, command, group
from radofed.cli.learner.sessions import open_session, question_result
from radofed.cli.output import Output, Result
from wire.request_fields import KEY_BITS, QueryOptions

if TYPE_CHECKING:
    from learner.decryption import LearnerKey
    from learner.planning import Plan
    from learner.release import Release
    from learner.session import Session
    from wire.status import QueryStatus

app = group("Send queries, fetch releases, train models and use them.")

_QueryId = Annotated[str, typer.Argument(help="The query's id, or its first digits.", show_default=False)]

_Timeout = Annotated[
    float | None, typer.Option(help="Longest wait, in seconds; the query continues. Default: no limit.")
]
_Bits = Annotated[int, typer.Option(help="Size of the Paillier modulus, in bits, 2048 to 4096.")]


@command(app, "keygen")
def keygen(
    output: Output,
    config: ConfigOption,
    bits: _Bits = KEY_BITS,
    short_opening: Annotated[
        bool, typer.Option("--short-opening", help="A key that opens totals about five times as fast.")
    ] = False,
) -> Result:
    """Make the Paillier key that decrypts this learner's totals.

    An existing key is never overwritten. A key with --short-opening rests on a younger assumption:
    docs/explanation/short-opening.md.
    """
    from learner.config import LearnerConfig
    from learner.decryption import create_key

    loaded = LearnerConfig.load(config)
    output.note(f"making a key of {bits} bits ...")
    return _made(loaded.paillier_key, create_key(loaded.paillier_key, bits, with_short_opening=short_opening))


@command(app, "rotate-key")
def rotate_key(
    output: Output,
    config: ConfigOption,
    bits: _Bits = KEY_BITS,
    short_opening: Annotated[
        bool | None,
        typer.Option(help="Whether the key opens totals about five times as fast. Default: as the former key."),
    ] = None,
) -> Result:
    """Put a new Paillier key in the place of the present one, for new queries.

    The signing key, which parties know, certifies it: no one else has to act. The former key stays in a file beside it,
    for totals of queries under it; delete that file once no such query is open.
    """
    from learner.config import LearnerConfig
    from learner.decryption import rotate_key as rotate

    loaded = LearnerConfig.load(config)
    output.note(f"making a key of {bits} bits ...")
    return _made(loaded.paillier_key, rotate(loaded.paillier_key, bits, with_short_opening=short_opening))


def _made(file: Path, key: "LearnerKey") -> Result:
    bits, fingerprint, short = key.public_key.bits, key.public_key.fingerprint(), key.secret.short_opening is not None
    data = {"file": file, "bits": bits, "fingerprint": fingerprint, "short_opening": short}
    return Result(data, f"{file}: a key of {bits} bits{', with short opening' * short}, fingerprint {fingerprint}")


@command(app, "query")
def query(output: Output, options: QueryOptions) -> Result:
    """Plan a query, send it, and fetch its release.

    Prints the plan first. With --no-wait the command ends when the query is sent.
    """
    from learner.history import AskedBeforeError
    from learner.requests import query_request
    from learner.session import check_timeout
    from radobase.schema_files import load_schema

    check_timeout(options.timeout_s)
    request, config = query_request(options, load_schema(options.schema, options.label)), options.config
    with open_session(config, output) as session:
        if options.would_accept:
            return question_result([session.would_accept(request, options.timeout_s)])
        plan = session.plan(request)
        for sentence in plan.sentences():
            output.note(sentence)
        if not options.ask_again and (earlier := session.asked_before(plan)) is not None:
            raise AskedBeforeError(earlier, f"{_again('fetch', earlier.query_id, config)} shows it")
        with _note_how_to_continue(output, session, plan.query_id, config):
            return _ask(output, session, plan, options)


def _ask(output: Output, session: "Session", plan: "Plan", options: QueryOptions) -> Result:
    query_id = session.ask(plan)
    output.note(f"asked: query {query_id.hex()}")
    cost = {"ciphertexts": plan.ciphertexts, "upload_bytes_per_party": plan.upload_bytes_per_party}
    if not options.wait:
        words = f"follow it with: {_again('fetch', query_id, options.config)}"
        return Result({"query_id": query_id, "plan": cost}, words)
    session.watch(query_id, timeout_s=options.timeout_s, retries=options.retries)
    fetched = _fetched(session.fetch(query_id), session.release_directory(query_id))
    return Result({**fetched.data, "plan": cost}, fetched.text)


@contextmanager
def _note_how_to_continue(output: Output, session: "Session", query_id: bytes, config: Path) -> Iterator[None]:
    """If a command ends before its query does, note how to continue."""
    from dpcore.errors import RadofedError

    try:
        yield
    except (KeyboardInterrupt, RadofedError) as error:
        if query_id in session.unsent():
            output.note(
                f"the coordinator has not acknowledged the query; send it with: {_again('send', query_id, config)}"
            )
        # Before the query is on disk there is nothing to follow.
        elif isinstance(error, KeyboardInterrupt) and query_id in session.asked():
            output.note(f"the query continues; follow it with: {_again('fetch', query_id, config)}, or cancel it")
        raise


@command(app, "send")
def send(output: Output, query_id: _QueryId, config: ConfigOption) -> Result:
    """Send a saved query to the coordinator again.

    For a query that the coordinator never acknowledged. Sending twice does no harm.
    """
    with open_session(config, output) as session:
        found = _find(session, query_id)
        session.send(found)
    return Result({"query_id": found}, f"the coordinator has it; follow it with: {_again('fetch', found, config)}")


@command(app, "list")
def list_queries(output: Output, config: ConfigOption, limit: Limit = None) -> Result:
    """List this learner's queries, newest first.

    Shows those that the coordinator still knows, and those that it never acknowledged.
    """
    from learner.progress import missing_words, phase_words

    with open_session(config, output) as session:
        unsent = session.unsent()
        # Note these first: the coordinator may still be out of reach, as when they were saved.
        for query_id in unsent:
            output.note(f"saved, never acknowledged; send it with: {_again('send', query_id, config)}")
        statuses = session.list()
        shown = statuses if limit is None and output.as_json else statuses[: LISTED if limit is None else limit]
        kinds = [session.kind(status.query_id) for status in shown]
    data = {
        "queries": [{**_status_data(status), "kind": kind} for status, kind in zip(shown, kinds, strict=True)],
        "unsent": unsent,
    }
    rows = [
        (
            local_time(status.submitted_at_unix_s),
            status.query_id.hex()[:16],
            kind or "unknown",
            phase_words(status),
            duration(status.remaining_s) if status.remaining_s else "",
            missing_words(status),
        )
        for status, kind in zip(shown, kinds, strict=True)
    ]
    lines = columns(("asked", "query", "kind", "phase", "left", "parties"), rows) if rows else ["no queries"]
    if hidden := len(statuses) - len(shown):
        lines.append(f"{amount(hidden, 'older query')}; --limit shows more")
    return Result(data, in_lines(lines))


@command(app, "status")
def status(output: Output, query_id: _QueryId, config: ConfigOption) -> Result:
    """Show the state of a query, party by party."""
    from learner.progress import advice, party_words

    with open_session(config, output) as session:
        found = session.status(_find(session, query_id))
        not_asked = session.not_asked(found.query_id)
    lines = [f"query {found.query_id.hex()}", _status_words(found)]
    lines += [f"  {party.party}: {party_words(party, found)}" for party in found.parties]
    lines += [f"  {name}: not asked" for name in not_asked]
    if todo := advice(found):
        lines.append(todo)
    return Result({**_status_data(found), "not_asked": list(not_asked)}, in_lines(lines))


@command(app, "cancel")
def cancel(output: Output, query_id: _QueryId, config: ConfigOption) -> Result:
    """End a query that has no total yet.

    What parties have charged stays charged.
    """
    with open_session(config, output) as session:
        found = _find(session, query_id)
        session.cancel(found)
    return Result({"query_id": found}, f"query {found.hex()} is cancelled")


@command(app, "retry")
def retry(
    output: Output,
    query_id: _QueryId,
    config: ConfigOption,
    wait: Annotated[bool, typer.Option(help="Follow the query and fetch its release.")] = True,
    timeout_s: _Timeout = None,
) -> Result:
    """Start another attempt of a query whose last attempt was lost.

    Parties that were charged for the lost attempt are charged again.
    """
    from learner.session import check_timeout

    check_timeout(timeout_s)
    with open_session(config, output) as session:
        found = _find(session, query_id)
        if cost := session.cost_of_retry(session.status(found)):
            output.note(cost)
        attempt = session.retry(found)
        output.note(f"attempt {attempt} of query {found.hex()} is started")
        if not wait:
            words = f"follow it with: {_again('fetch', found, config)}"
            return Result({"query_id": found, "attempt": attempt}, words)
        with _note_how_to_continue(output, session, found, config):
            session.watch(found, timeout_s=timeout_s)
        return _fetched(session.fetch(found), session.release_directory(found))


@command(app, "fetch")
def fetch(
    output: Output,
    query_id: _QueryId,
    config: ConfigOption,
    wait: Annotated[bool, typer.Option(help="Follow the query until it is complete.")] = True,
    timeout_s: _Timeout = None,
) -> Result:
    """Fetch a query's total and save its release.

    Checks the total, decrypts it, and saves the release with its privacy statement.
    """
    from learner.session import check_timeout

    check_timeout(timeout_s)
    with open_session(config, output) as session:
        found = _find(session, query_id)
        # A saved release is shown even if the coordinator has forgotten the query or is down.
        if wait and not session.release_directory(found).exists():
            with _note_how_to_continue(output, session, found, config):
                session.watch(found, timeout_s=timeout_s)
        return _fetched(session.fetch(found), session.release_directory(found))


def _find(session: "Session", text: str) -> bytes:
    """The query id that is `text` or begins with it, among this learner's queries: those on disk, then the others."""
    from dpcore.errors import ConfigurationError

    if not re.fullmatch("[0-9a-f]{4,64}", text):
        raise ConfigurationError(f"{text!r} is not a query's id: give at least its first 4 hexadecimal digits")
    if len(text) == 64:
        return bytes.fromhex(text)
    matching = [known for known in session.asked() if known.hex().startswith(text)]
    matching = matching or [known.query_id for known in session.list() if known.query_id.hex().startswith(text)]
    if len(matching) != 1:
        found = f"{len(matching)} queries" if matching else "no query of this learner's"
        raise ConfigurationError(
            f"{found} have an id that begins with {text}; give more of it, or see `rado learner list`"
        )
    return matching[0]


def _again(name: str, query_id: bytes, config: Path) -> str:
    """A command about a query, to copy."""
    return f"rado learner {name} {query_id.hex()[:16]} --config {shlex.quote(str(config))}"


def _status_words(status: "QueryStatus") -> str:
    from learner.progress import phase_words, progress_sentence
    from wire.errors import Code
    from wire.status import Phase

    words = progress_sentence(status)
    if status.code == Code.ONLY_ASKED:
        return f"{phase_words(status)}: {status.detail}"
    if status.code:
        return f"{words}: {status.code}: {status.detail}"
    if status.phase is Phase.LOST:
        return f"{words}: {status.detail} It waits for `rado learner retry` for {status.remaining_s} s"
    return words if status.phase.is_terminal else f"{words}, {status.remaining_s} s left in this phase"


def _status_data(status: "QueryStatus") -> dict[str, Any]:
    return {
        "query_id": status.query_id,
        "attempt": status.attempt,
        "phase": status.phase.name.lower(),
        "parties": [
            {"name": p.party, "state": p.state.name.lower(), "code": p.code or None, "chunks": p.chunks, "rows": p.rows}
            for p in status.parties
        ],
        "code": status.code or None,
        "detail": status.detail or None,
        "remaining_s": status.remaining_s,
        "chunks_expected": status.chunks_expected,
        "submitted_at_unix_s": status.submitted_at_unix_s,
        "answering_ended_early": status.answering_ended_early,
    }


def _how_to_use(kind: str, directory: Path) -> str:
    if kind in ("statistic", "local-statistic", "gradient"):
        return "to use it, give the command that asked it again with --reuse: nothing is asked or charged again"
    return f"train on it with: rado learner train {directory} --output model.json"


def _fetched(release: "Release", directory: Path) -> Result:
    data = {
        "query_id": release.query_id,
        "release": directory,
        "digest": release.digest,
        "parties": len(release.party_rows),
        "rows": release.cohort_rows,
        "rows_by_party": release.party_rows,
        **({"vanished": list(release.vanished)} if release.vanished else {}),
        **release.contents_data,
        **release.part_data,
        "privacy": release.statement.to_dict(),
    }
    part = "" if release.query.held_back is None else f"; {release.query.held_back.words()}"
    lines = [
        (
            f"{directory}: {release.contents} over {amount(release.cohort_rows, 'row')} of {len(release.party_rows)} "
            f"parties{part}"
        ),
        *([f"{listed(release.vanished)} vanished: the answer is of the others"] if release.vanished else []),
        *release.statement.short_sentences(),
        *([] if release.query.study is None else [f"study: {release.query.study.short}"]),
        _how_to_use(release.query.kind.name, directory),
    ]
    return Result(data, in_lines(lines))
