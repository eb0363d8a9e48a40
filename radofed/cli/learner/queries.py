"""`rado learner`: from a key to a model."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radofed.cli.arguments import exact
from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import Output, QueryProgress, Result, progress_sentence

if TYPE_CHECKING:
    from learner.planning import Plan
    from learner.release import Release
    from learner.session import Session
    from wire.status import QueryStatus

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)

app = group("Ask queries, fetch releases, train and predict.")

_QueryId = Annotated[str, typer.Argument(help="The query's id, or the beginning of it.", show_default=False)]
Timeout = Annotated[float | None, typer.Option(help="Give up waiting after this many seconds; the query goes on.")]


@command(app, "keygen")
def keygen(
    output: Output,
    config: ConfigOption,
    bits: Annotated[int, typer.Option(help="Size of the Paillier modulus, 2048 to 4096.")] = 3072,
) -> Result:
    """Make the Paillier key that opens this learner's totals. An existing key is never overwritten."""
    from learner.config import LearnerConfig
    from learner.keys import create_key

    loaded = LearnerConfig.load(config)
    output.note(f"making a key of {bits} bits ...")
    key = create_key(loaded.paillier_key, bits)
    fingerprint = key.public_key.fingerprint()
    data = {"file": loaded.paillier_key, "bits": key.public_key.bits, "fingerprint": fingerprint}
    return Result(data, f"{loaded.paillier_key}: a key of {key.public_key.bits} bits, fingerprint {fingerprint}")


@command(app, "query")
def query(
    output: Output,
    config: ConfigOption,
    schema: Annotated[Path, typer.Option(help="The schema that the parties share.", show_default=False)],
    rados: Annotated[
        int | None,
        typer.Option(help="How many rados. Moments take none, dp-feat by default as many as --epsilon allows."),
    ] = None,
    design: Annotated[str, typer.Option(help="plain, dp-feat, fixed-support, gaussian or moments.")] = "dp-feat",
    sensitive: Annotated[
        list[str] | None,
        typer.Option(help="dp-feat: a boolean or threshold feature; may be repeated. With --joint: a source column."),
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="dp-feat: noise that protects the column within the whole release.")
    ] = False,
    rounded: Annotated[
        list[str] | None, typer.Option(help="dp-feat: a real-valued sensitive feature to round to a sign.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="The total that noise is calibrated to, when the others collude; exact.")
    ] = None,
    norm_bound: Annotated[str | None, typer.Option(help="R: records are clipped to this length; exact.")] = None,
    support: Annotated[
        str | None, typer.Option(help="fixed-support, gaussian: the fraction of its records a party draws; exact.")
    ] = None,
    edge_weight: Annotated[
        str | None, typer.Option(help="moments: how much more precise edges are than products; exact.")
    ] = None,
    epsilon_per_rado: Annotated[
        str | None, typer.Option(help="dp-feat: Algorithm 2's epsilon, an exact decimal; by default no truncation.")
    ] = None,
    delta: Annotated[str, typer.Option(help="The delta that epsilon is counted at, an exact decimal.")] = "1e-6",
    fraction_bits: Annotated[int | None, typer.Option(help="Precision of an edge's coordinates.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="The most rows that a cohort may have.")] = None,
    max_parties: Annotated[int | None, typer.Option(help="The most parties of a cohort.")] = None,
    cohort_min: Annotated[int | None, typer.Option(help="The fewest parties of a cohort.")] = None,
    colluders: Annotated[int | None, typer.Option(help="Parties assumed to collude.")] = None,
    attempts: Annotated[int | None, typer.Option(help="The most attempts; each is charged.")] = None,
    answer_within_s: Annotated[int | None, typer.Option(help="How long parties have to answer.")] = None,
    prepare_within_s: Annotated[int | None, typer.Option(help="How long they have to get ready.")] = None,
    upload_within_s: Annotated[int | None, typer.Option(help="How long they have to upload.")] = None,
    expires_after_s: Annotated[int | None, typer.Option(help="When the query dies in any case.")] = None,
    wait: Annotated[bool, typer.Option(help="Follow the query and fetch its release.")] = True,
    timeout_s: Timeout = None,
) -> Result:
    """Plan a query, print the plan, ask it, and unless told otherwise follow it and fetch its release."""
    from learner.config import LearnerConfig
    from learner.requests import release_request
    from learner.session import Session, check_timeout
    from radofed.common.files.schemas import load_schema

    check_timeout(timeout_s)
    chosen: dict[str, Any] = {
        "fraction_bits": fraction_bits,
        "max_rows": max_rows,
        "max_parties": max_parties,
        "cohort_min": cohort_min,
        "colluders": colluders,
        "attempts": attempts,
        "answer_within_s": answer_within_s,
        "prepare_within_s": prepare_within_s,
        "upload_within_s": upload_within_s,
        "expires_after_s": expires_after_s,
    }
    figures = {
        "epsilon": epsilon,
        "epsilon_per_rado": epsilon_per_rado,
        "norm_bound": norm_bound,
        "support": support,
        "edge_weight": edge_weight,
        "delta": delta,
    }
    chosen |= {name: None if text is None else exact(text, name.replace("_", "-")) for name, text in figures.items()}
    chosen |= {"rados": rados, "sensitive": tuple(sensitive or ()), "rounded": tuple(rounded or ()), "joint": joint}
    request = release_request(load_schema(schema), design, chosen)
    with Session(LearnerConfig.load(config)) as session:
        plan = session.plan(request)
        for sentence in plan.sentences():
            output.note(sentence)
        with _told_what_goes_on(output, session, plan.query_id, config):
            return _ask(output, session, plan, config, wait=wait, timeout_s=timeout_s)


def _ask(
    output: Output, session: "Session", plan: "Plan", config: Path, *, wait: bool, timeout_s: float | None
) -> Result:
    query_id = session.ask(plan)
    output.note(f"asked: query {query_id.hex()}")
    cost = {"ciphertexts": plan.ciphertexts, "upload_bytes_per_party": plan.upload_bytes_per_party}
    if not wait:
        words = f"follow it with: {_again('fetch', query_id, config)}"
        return Result({"query_id": query_id, "plan": cost}, words)
    session.watch(query_id, QueryProgress(), timeout_s)
    fetched = _fetched(session.fetch(query_id), session.release_directory(query_id))
    return Result({**fetched.data, "plan": cost}, fetched.text)


@contextmanager
def _told_what_goes_on(output: Output, session: "Session", query_id: bytes, config: Path) -> Iterator[None]:
    """Where a command ends before its query does, people are told what becomes of it."""
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
            output.note(f"the query goes on; follow it with: {_again('fetch', query_id, config)}, or cancel it")
        raise


@command(app, "send")
def send(_output: Output, query_id: _QueryId, config: ConfigOption) -> Result:
    """Send a query that was saved and that the coordinator never acknowledged. Sending twice does no harm."""
    from learner.config import LearnerConfig
    from learner.session import Session

    with Session(LearnerConfig.load(config)) as session:
        found = _find(session, query_id)
        session.send(found)
    return Result({"query_id": found}, f"the coordinator has it; follow it with: {_again('fetch', found, config)}")


@command(app, "list")
def list_queries(output: Output, config: ConfigOption) -> Result:
    """List this learner's queries that the coordinator still knows, and those that it never acknowledged."""
    from learner.config import LearnerConfig
    from learner.session import Session

    with Session(LearnerConfig.load(config)) as session:
        unsent = session.unsent()
        # Said first: they are there because the coordinator could not be reached, and may still not be.
        for query_id in unsent:
            output.note(f"saved, never acknowledged; send it with: {_again('send', query_id, config)}")
        statuses = session.list()
    lines = [f"{status.query_id.hex()[:16]}  {_status_words(status)}" for status in statuses]
    data = {"queries": [_status_data(status) for status in statuses], "unsent": unsent}
    return Result(data, "\n".join(lines) or "no queries")


@command(app, "status")
def status(_output: Output, query_id: _QueryId, config: ConfigOption) -> Result:
    """Show where a query stands, party by party."""
    from learner.config import LearnerConfig
    from learner.session import Session

    with Session(LearnerConfig.load(config)) as session:
        found = session.status(_find(session, query_id))
    lines = [f"query {found.query_id.hex()}", _status_words(found)]
    for party in found.parties:
        extra = f", {party.code}" if party.code else f", {party.rows} rows" if party.rows else ""
        lines.append(f"  {party.party}: {party.state.name.lower()}{extra}")
    return Result(_status_data(found), "\n".join(lines))


@command(app, "cancel")
def cancel(_output: Output, query_id: _QueryId, config: ConfigOption) -> Result:
    """End a query that has no total yet. What parties have charged stays charged."""
    from learner.config import LearnerConfig
    from learner.session import Session

    with Session(LearnerConfig.load(config)) as session:
        found = _find(session, query_id)
        session.cancel(found)
    return Result({"query_id": found}, f"query {found.hex()} is cancelled")


@command(app, "fetch")
def fetch(
    output: Output,
    query_id: _QueryId,
    config: ConfigOption,
    wait: Annotated[bool, typer.Option(help="Follow the query until it is complete.")] = True,
    timeout_s: Timeout = None,
) -> Result:
    """Fetch a query's total, check it, open it, and save the release with its privacy statement."""
    from learner.config import LearnerConfig
    from learner.session import Session, check_timeout

    check_timeout(timeout_s)
    with Session(LearnerConfig.load(config)) as session:
        found = _find(session, query_id)
        # What is saved already is shown, though the coordinator has forgotten it or is down.
        if wait and not session.release_directory(found).exists():
            with _told_what_goes_on(output, session, found, config):
                session.watch(found, QueryProgress(), timeout_s)
        return _fetched(session.fetch(found), session.release_directory(found))


def _find(session: "Session", text: str) -> bytes:
    """The id that a text is, or that begins with it among this learner's queries: those on disk, then the others."""
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
    """A command about a query, for people to copy."""
    return f"rado learner {name} {query_id.hex()[:16]} --config {shlex.quote(str(config))}"


def _status_words(status: "QueryStatus") -> str:
    words = progress_sentence(status)
    if status.code:
        return f"{words}: {status.code}: {status.detail}"
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
    }


def _fetched(release: "Release", directory: Path) -> Result:
    data = {
        "query_id": release.query_id,
        "release": directory,
        "digest": release.digest,
        "parties": len(release.party_rows),
        "rows": release.rows,
        "rows_by_party": release.party_rows,
        **release.contents_data,
        "privacy": release.statement.to_dict(),
    }
    lines = [
        f"{directory}: {release.contents} over {release.rows} rows of {len(release.party_rows)} parties",
        *release.statement.sentences(),
        f"train on it with: rado learner train {directory} --output model.json",
    ]
    return Result(data, "\n".join(lines))
