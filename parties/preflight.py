"""`rado party check`: finds what would stop a party from taking part, each problem with its cause and its fix."""

import datetime as dt
import importlib.util
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Final

from dpcore.errors import RadofedError
from dpcore.records.computation import PartySecret
from dpcore.records.schema import differences
from parties.approval.notifying import (
    NotificationError,
    NotifySettings,
    run_command,
    test_message,
    why_not_executable,
)
from parties.check_files import CheckFailedError, Finding, Run, check_files, check_state, compare_schemas, fix_for
from parties.check_studies import check_study_numbers
from parties.client import CoordinatorClient, probe
from parties.config import PartyConfig, settings_of
from parties.data.row_guard import ADVICE, RowCounts, faults, load_known
from parties.members import Rosters, known_rosters, unowned_keys
from parties.state_directory import FILE as SECRET_FILE
from parties.state_directory import FIX, OUTDATED, OUTDATED_FACTOR, load, stated_rows
from radobase.failure import in_words
from radobase.local_status import NotRunningError, UnreadableStateError, read_status
from radobase.logs import Log
from radobase.metrics import Reason, WatchSettings, reason_lines
from radobase.printing import DIGEST_DIGITS, amount, local_time
from radobase.watch_server import Health, ask_ready
from wire.envelopes import fingerprint, spoken
from wire.errors import Code, WireError
from wire.query import open_query
from wire.roster import Role, open_roster
from wire.transport import coordinator_of, proxy_of

# Checks of the running node: whether it is ready, and whether it holds what the files have.


_RELOAD = "The node answers from other rows, or through another schema, than the files have: run `rado party reload`."


_NOT_READY = "Until then it answers no query; docs/runbooks/RadoNotReady.md says what to do for each reason."
_RESTART = "Restart the node: it reads its configuration when it starts."
_OTHER_POLICY = "The node follows another policy than the file has: run `rado party reload`."


def check_running_node(run: Run) -> None:
    """Say whether the node is ready and what it holds. Changes nothing."""
    run.step("row-limits", lambda: _row_limits(run), needs=("policy", "data"))
    run.step("node", lambda: _node(run))
    run.step("held-data", lambda: _held_data(run))


def _row_limits(run: Run) -> None:
    """As the node decides when it loads the files."""
    counts = RowCounts.of(run.report)
    found = faults(counts, load_known(run.config.state_directory), run.policy.data)
    if found:
        raise CheckFailedError("; ".join(found.values()), f"{ADVICE[0].upper()}{ADVICE[1:]}.")
    run.add("row-limits", f"{counts.usable} of {counts.rows} rows are usable, as the policy wants")


def _node(run: Run) -> None:
    try:
        found = read_status(run.config.state_directory)
    except UnreadableStateError as error:
        raise CheckFailedError(str(error), "Read the node's log.") from error
    except NotRunningError:
        run.add("node", "no node runs")
        return
    settings = found.get("configuration")
    if settings is not None and (other := _differences(run, settings)):
        words = f"process {found['pid']} runs with another {', '.join(other)} than the file has"
        raise CheckFailedError(words, _RESTART)
    if found["not_ready"] == [Reason.WAITING_FOR_WITNESSES.value]:
        # Nothing to correct here: it ends when the others run.
        run.add("node", f"process {found['pid']} runs, and {Reason.WAITING_FOR_WITNESSES.sentence}", _NOT_READY)
        return
    if found["not_ready"]:
        reasons = "; ".join([*reason_lines(found["not_ready"]), *found.get("rows_not_accepted", {}).values()])
        raise CheckFailedError(f"process {found['pid']} runs and is not ready: {reasons}", _NOT_READY)
    words = f"process {found['pid']} runs and is ready"
    digest = found["policy"].get("digest")
    if digest is None or not hasattr(run, "policy"):
        run.add("node", words)
    elif digest != run.policy.digest:
        run.add("node", f"{words}, with policy {digest[:DIGEST_DIGITS]}; the file has "
                f"{run.policy.digest[:DIGEST_DIGITS]}", _OTHER_POLICY)  # fmt: skip
    else:
        run.add("node", f"{words}, with this configuration and this policy, digest {digest[:DIGEST_DIGITS]}")


def _differences(run: Run, running: dict[str, Any]) -> list[str]:
    """The settings in which the running node differs from the file."""
    present = settings_of(run.config)
    return sorted(name for name in {*present, *running} if present.get(name) != running.get(name))


def _held_data(run: Run) -> None:
    try:
        held: dict[str, Any] = read_status(run.config.state_directory)["data"]
    except NotRunningError:
        run.add("held-data", "no node runs; it reads the data when it starts")
        return
    digest, loaded = held["digest"], local_time(held["loaded_at_unix_s"])
    words = f"the node holds {amount(held['rows'], 'row')}, loaded {loaded}, digest {digest[:DIGEST_DIGITS]}"
    if run.rows_digest is None:
        run.add("held-data", f"{words}; the files could not be compared with them")
        return
    secret = load(run.config.state_directory / SECRET_FILE)
    present = PartySecret(secret, run.schema.digest).data_digest(run.rows_digest)
    if present == digest:
        run.add("held-data", f"{words}: those of the files")
        return
    refused = f" The last reload failed: {held['refused']}" if held["refused"] else ""
    run.add("held-data", f"{words}; the files have digest {present[:DIGEST_DIGITS]}", f"{_RELOAD}{refused}")


# Check of the section `[notify]`: whether the command can be executed, and with a test how it ends.


def check_notification(run: Run, *, send: bool) -> None:
    """Check the section if the configuration has one. send: run the command once, with a test message."""
    settings = run.config.notify
    if settings is not None:
        run.step("notification", lambda: _notification(run, settings, send=send))


def _notification(run: Run, settings: NotifySettings, *, send: bool) -> None:
    if why := why_not_executable(settings):
        raise CheckFailedError(
            f"the command of [notify] cannot be run: {why}, so nobody is told of queries that wait",
            "Correct command, or the program and its rights: chmod +x, for the node's user.",
        )
    program = settings.command[0]
    if not send:
        run.add("notification", f"{program} can be executed; it was not run: --notify runs it once with a test message")
        return
    content = test_message(run.config.name, run.config.federation, "somebody ran rado party check --notify")
    begun = time.monotonic()
    try:
        run_command(settings, json.dumps(content).encode())
    except NotificationError as error:
        raise CheckFailedError(
            f"the command of [notify] failed with a test message: {error}",
            "Run it by hand with such a message on standard input. `rado party notify-test` tries it again.",
        ) from error
    seconds = time.monotonic() - begun
    run.add("notification", f"{program} ended well after {seconds:.1f} s with a test message; ask whether it arrived")


# Check of the section `[watch]`: whether the running node answers there, or a node that starts could serve there.


LOADING = Reason.DATA_NOT_LOADED.value
"""A node that loads its data says so at its place in [watch], and has no other socket yet."""
_WATCH_RESTART = "Restart the node: it reads [watch] when it starts. Its log says if it could not serve there."


def check_watch(run: Run) -> None:
    """Check the section if the configuration has one. Changes nothing, and leaves nothing open."""
    settings = run.config.watch
    if settings is not None:
        run.step("watch", lambda: _watch(run, settings))


def _watch(run: Run, settings: WatchSettings) -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        raise CheckFailedError(
            "[watch] needs prometheus_client, which is not installed", "python deploy/install.py metrics"
        )
    found, is_running = _ask(settings), _is_running(run.config)
    if found is not None and (is_running or LOADING in {code for code, _ in found.reasons}):
        reasons = "; ".join(f"{code}: {sentence}" for code, sentence in found.reasons)
        state = f"the node answers at {settings.words}, and is"
        run.add("watch", f"{state} not ready: {reasons}" if reasons else f"{state} ready")
    elif is_running:
        raise CheckFailedError(f"the node runs, and does not answer at {settings.words}", _WATCH_RESTART)
    elif found is not None:
        raise CheckFailedError(
            f"the node does not run, and another node answers at {settings.words}", "Give each node its own place."
        )
    else:
        _check_free(settings)
        run.add("watch", f"the node does not run; {settings.words} is free for it")


def _ask(settings: WatchSettings) -> Health | None:
    try:
        return ask_ready(settings)
    except NotRunningError:
        return None


def _is_running(config: PartyConfig) -> bool:
    """Whether this party's node runs and has loaded its data."""
    try:
        read_status(config.state_directory)
    except NotRunningError:
        return False
    return True


def _check_free(settings: WatchSettings) -> None:
    match settings.place:
        case Path() as path:
            _check_socket(path)
        case host, port:
            _check_address(host, port, settings.words)


def _check_address(host: str, port: int, words: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        # As the node's server does: an address whose last connections are still closing is free.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise CheckFailedError(
                f"the node does not run, and cannot serve metrics on {words} ({in_words(error)})",
                "Choose a free port, or stop the program that uses this one: each node needs its own.",
            ) from error


def _check_socket(path: Path) -> None:
    directory = path.parent
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        raise CheckFailedError(
            f"{directory} is no directory that this user may write to, so the node cannot serve metrics on {path}",
            "Make the directory, or choose another place.",
        )
    # A socket on which no one answers was left by a node that was killed: the next one replaces it.
    if path.exists() and not path.is_socket():
        raise CheckFailedError(f"{path} is there, and is no socket", "Move it away, or choose another name.")


# Checks of the connection, the coordinator and what it serves: roster, clock, membership, open queries.


FURTHEST_CLOCK_S: Final = 60.0
PATIENCE_S: Final = 5.0


def check_connection(run: Run) -> None:
    """All of these, in order."""
    run.step("coordinator", lambda: _coordinator(run), needs=("certificate",))
    run.step("tls", lambda: _tls(run), needs=("coordinator",))
    try:
        run.step("health", lambda: _health(run), needs=("tls",))
        run.step("roster", lambda: _roster(run), needs=("tls", "federation-key"))
        run.step("clock", lambda: _clock(run), needs=("roster",))
        run.step("membership", lambda: _membership(run), needs=("roster", "signing-key"))
        run.step("stated-rows", lambda: _stated_rows(run), needs=("membership", "data"))
        run.step("accepted-members", lambda: _accepted(run), needs=("roster", "policy"))
        run.step("queries", lambda: _queries(run), needs=("roster", "schema", "health"))
    finally:
        if run.client is not None:
            run.client.close()


def _coordinator(run: Run) -> None:
    run.coordinator = coordinator_of(run.config)
    run.served = probe(run.coordinator, run.config.tls.files, timeout_s=PATIENCE_S)
    proxy = proxy_of(run.coordinator)
    way = "" if proxy is None else f" through the proxy {proxy.host}:{proxy.port} of {proxy.variable}"
    moved = "" if run.coordinator == run.config.coordinator else f", where it moved from {run.config.coordinator}"
    run.add("coordinator", f"{run.coordinator} is reachable{way}{moved}")


def _tls(run: Run) -> None:
    run.served.check(run.config.federation, dt.datetime.fromtimestamp(run.time(), dt.UTC))
    run.client = CoordinatorClient(run.coordinator, run.config.tls.files, give_up_after_s=PATIENCE_S)
    run.add("tls", f"{run.served.version}, {run.served.san}, issued by this federation's authority")


def _health(run: Run) -> None:
    assert run.client is not None
    if not run.client.is_serving():
        raise CheckFailedError("the coordinator reports that it is not serving", "Ask the operator to check it.")
    run.add("health", "the coordinator is serving")


def _roster(run: Run) -> None:
    assert run.client is not None
    before = run.time()
    envelope, server_time = run.client.fetch_roster()
    # The network can have added at most half the call's duration.
    run.clock_ahead_s = (before + run.time()) / 2 - server_time
    run.roster = open_roster(envelope, run.federation_key)
    if run.roster.federation != run.config.federation:
        raise CheckFailedError(
            f"the roster is for federation {run.roster.federation!r}", "Correct federation or coordinator."
        )
    remembered = Rosters(
        run.config.state_directory,
        federation=run.config.federation,
        federation_key=run.federation_key,
        log=Log("party.check"),
    )
    try:
        remembered.check(envelope)
    except WireError as error:
        served, run.roster = run.roster, remembered.current
        # The later checks use the roster that the party keeps.
        run.provided.add("roster")
        other = "a different roster with" if served.version == run.roster.version else "roster"
        raise CheckFailedError(
            f"the coordinator serves {other} version {served.version}; this party has seen version "
            f"{run.roster.version} and keeps it",
            "Ask the operator why the coordinator went back (it may have lost its state) and to issue a higher "
            "version.",
        ) from error
    now, roster = run.time(), run.roster
    detail = f"version {roster.version}, {amount(len(roster.parties), 'party')}, expires: {roster.expiry_date}"
    if roster.is_expired(now):
        run.provided.add("roster")
        raise CheckFailedError(detail, f"{roster.expiry_warning(now)}.")
    run.add("roster", detail, roster.expiry_warning(now))


def _clock(run: Run) -> None:
    ahead = run.clock_ahead_s
    detail = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the coordinator's clock"
    if abs(ahead) > FURTHEST_CLOCK_S:
        raise CheckFailedError(f"this clock is {detail}", "Set this machine's clock, for example with NTP.")
    run.add("clock", detail)


def _membership(run: Run) -> None:
    member = run.roster.find(run.config.name, Role.PARTY)
    if member is None:
        raise CheckFailedError(
            f"the roster has no party {run.config.name!r}", "Ask the operator to add this party to the roster."
        )
    if member.signing_key != run.signing_key.public_bytes:
        raise CheckFailedError(
            f"the roster has key {fingerprint(member.signing_key)} for this party; signing_key is a different key",
            "Use the key that the operator was given, or ask the operator for a roster with the current key.",
        )
    run.add("membership", "the roster lists this party with this signing key")


def _stated_rows(run: Run) -> None:
    stated = stated_rows(run.roster, run.config.name)
    if stated is None:
        run.add("stated-rows", "the roster states no number of rows for this party")
        return
    words = f"the roster states at least {amount(stated, 'row')}, and the table has {run.rows}"
    few = "" if run.rows >= stated else f"Learners plan with the stated number. {FIX}"
    run.add("stated-rows", words, OUTDATED if run.rows > OUTDATED_FACTOR * stated else few)


def _accepted(run: Run) -> None:
    others = [member for member in run.roster.parties if member.name != run.config.name]
    strangers = [m for m in others if not run.policy.count_accepted(run.roster, run.config.name, (m.name,))]
    learners = [m for m in run.roster.members if m.role is Role.LEARNER]
    pinned = {(learner.name, learner.signing_key) for learner in run.policy.learners}
    unpinned = [m for m in learners if (m.name, fingerprint(m.signing_key).replace(":", "")) not in pinned]
    advice = [
        f"Call the owner of {m.name}; if they read out these digits, run: rado party accept {m.name} "
        f'--config party.toml --fingerprint "{spoken(m.signing_key)}"'
        for m in (*strangers, *unpinned)
    ]
    rosters = known_rosters(run.config)
    earlier = [*rosters.former(), *([] if rosters.known is None else [rosters.known])]
    advice += [
        f"accepted_members has {entry.fingerprint}, {entry.whose}: it would count again if a roster listed it. "
        "Delete its line in policy.toml, and run `rado party reload`."
        for entry in unowned_keys(run.policy.accepted_members, run.roster, earlier)
    ]
    advice += [
        f"[[learners]] has {entry.fingerprint}, {entry.whose}: it may ask again if a roster lists it. "
        "Delete its table in policy.toml, and run `rado party reload`."
        for entry in unowned_keys([each.signing_key for each in run.policy.learners], run.roster, earlier)
    ]
    if run.policy.required_witnesses > len(others) - len(strangers):
        advice.append(
            f"required_witnesses is {run.policy.required_witnesses}: this party answers no query until so many "
            "accepted members confirm its ledger."
        )
    needed = run.policy.members_needed(1)
    if needed > len(run.roster.parties):
        advice.append(
            f"A cohort needs {needed} accepted parties, and the roster has {len(run.roster.parties)}: every query is "
            "refused. Lower smallest_cohort and assumed_colluders in policy.toml, or wait for more parties."
        )
    run.add(
        "accepted-members",
        f"{len(others) - len(strangers)} of {len(others)} other parties accepted, "
        f"{len(learners) - len(unpinned)} of {len(learners)} learners pinned",
        " ".join(advice),
    )


def _queries(run: Run) -> None:
    assert run.client is not None
    batch = run.client.fetch_work(0, 0)
    open_work = [work for work in batch.work if not work.phase.is_terminal]
    wrong, fixes = [], []
    for work in open_work:
        name = f"query {work.query_id.hex()[:16]}"
        try:
            query = open_query(work.query, run.roster, now_unix_s=run.time()).query
        except RadofedError as error:
            said, hint = (error.public_sentence, error.hint) if isinstance(error, WireError) else (str(error), "")
            wrong.append(f"{name} cannot be opened: {said}")
            fixes.append(hint)
            continue
        differing = differences(run.schema.nearest_to(query.schema), query.schema)
        found = [f"{d.field}: here {d.mine}, there {d.theirs}" for d in differing]
        if found:
            wrong.append(f"{name} of {query.learner}: {'; '.join(found)}")
            fixes.append(fix_for(Code.SCHEMA_MISMATCH))
    if batch.unreadable:
        wrong.append(f"{batch.unreadable} could not be read")
        fixes.append("Update the older of the two nodes.")
    if wrong:
        raise CheckFailedError(" | ".join(wrong), " ".join(filter(None, dict.fromkeys(fixes))))
    run.add("queries", f"{len(open_work)} open, all with this party's schema" if open_work else "none open")


def preflight(
    config: PartyConfig | Path, *, against: Path | None = None, now: float | None = None, notify: bool = False
) -> tuple[Finding, ...]:
    """Check a party's files, its connection and the open queries. Answers no query.

    config: the configuration, or its file. against: another schema file to compare with. now: Unix seconds; default:
    the system's clock. notify: run the notification command with a test message.

    Problems of the party are in the findings and raise no error.
    """
    run = Run(now)
    try:
        run.config = PartyConfig.load(config) if isinstance(config, Path) else config
        run.add("configuration", f"party {run.config.name!r} of federation {run.config.federation!r}")
    except RadofedError as error:
        run.findings.append(Finding("configuration", False, str(error), "Correct the file."))
        return tuple(run.findings)
    check_files(run)
    check_running_node(run)
    check_state(run)
    check_study_numbers(run)
    check_notification(run, send=notify)
    check_watch(run)
    if against is not None:
        run.step("schema-against", lambda: compare_schemas(run, against), needs=("schema",))
    check_connection(run)
    return tuple(run.findings)
