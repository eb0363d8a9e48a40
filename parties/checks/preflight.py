"""`rado party check`: finds what would stop a party from taking part, each problem with its cause and its fix."""

import datetime as dt
from pathlib import Path
from typing import Final

from dpcore.errors import RadofedError
from dpcore.records.schema import differences
from parties.checks.findings import CheckFailedError, Finding, Run
from parties.checks.own_files import check_files, check_state, compare_schemas, fix_for
from parties.checks.running_node import check_running_node, check_watch
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.probe import probe
from parties.rosters import Rosters
from parties.state_directory import FIX, OUTDATED, OUTDATED_FACTOR, stated_rows
from radobase.logs import Log
from radobase.printing import amount
from wire.envelopes import fingerprint, spoken
from wire.errors import Code, WireError
from wire.query import open_query
from wire.roster import Role, open_roster
from wire.transport import proxy_of

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
    run.served = probe(run.config.coordinator, run.config.tls.files, timeout_s=PATIENCE_S)
    proxy = proxy_of(run.config.coordinator)
    way = "" if proxy is None else f" through the proxy {proxy.host}:{proxy.port} of {proxy.variable}"
    run.add("coordinator", f"{run.config.coordinator} is reachable{way}")


def _tls(run: Run) -> None:
    run.served.check(run.config.federation, dt.datetime.fromtimestamp(run.time(), dt.UTC))
    run.client = CoordinatorClient(run.config.coordinator, run.config.tls.files, give_up_after_s=PATIENCE_S)
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
        found = [f"{d.field}: here {d.mine}, there {d.theirs}" for d in differences(run.schema, query.schema)]
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
    config: PartyConfig | Path, *, against: Path | None = None, now: float | None = None
) -> tuple[Finding, ...]:
    """Check a party's files, its connection and the open queries. Answers no query.

    config: the configuration, or its file. against: another schema file to compare with. now: Unix seconds; default:
    the system's clock. Problems of the party are in the findings and raise no error.
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
    check_watch(run)
    if against is not None:
        run.step("schema-against", lambda: compare_schemas(run, against), needs=("schema",))
    check_connection(run)
    return tuple(run.findings)
