"""`rado party check`: finds what would stop a party from taking part, each problem with its cause and its fix."""

import datetime as dt
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpcore.accounting.dp_feat import dp_feat_range
from dpcore.errors import PlanError, RadofedError
from dpcore.records.schema import Schema, differences
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.data.dataset import check as check_data
from parties.data.refusing import advice as advice_on_refusing
from parties.database import LedgerOwner
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.history.history import History, Refused
from parties.ledger.anchor import head_path
from parties.ledger.ledger import Ledger
from parties.ledger.witnessed import Witnessed
from parties.policy import Policy
from parties.probe import Served, probe
from parties.rosters import Rosters
from radofed.common.files.reading import ExposedKeyError, check_private
from radofed.common.files.schemas import load_schema
from radofed.common.logs import Log
from wire.envelopes import SigningKey, fingerprint, load_public_key
from wire.errors import CATALOGUE, Code, WireError
from wire.query import open_query
from wire.roster import Role, Roster, open_roster

FURTHEST_CLOCK_S = 60.0
RECENT_REFUSALS_S = 7 * 86_400.0
PATIENCE_S = 5.0
_NO_ORDER = (
    "a query need not give its rows in the same order every time, and then others are held back: name an id_column, or "
    "end the query with ORDER BY and a unique column"
)
_BY_PLACE = (
    "their place in the table: if it is sorted, or rows are added before others, rows that were trained on may be held "
    "back later (id_column in the configuration avoids this)"
)
# Designs that never bound what a release reveals about whole records.
_UNBOUNDED_DESIGNS = frozenset({"plain", "dp-feat", "dp-feat-joint"})


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    ok: the check passed; a `fix` that is not empty is then advice. ran: False if the check did not run, because a
    check that it depends on failed. fix: how to fix the problem.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    ran: bool = True

    @property
    def status(self) -> str:
        """One of "ok", "advice", "failed" and "not run"."""
        if not self.ran:
            return "not run"
        if not self.ok:
            return "failed"
        return "advice" if self.fix else "ok"


class CheckFailedError(RadofedError):
    """A problem that a check found, with its fix."""

    def __init__(self, detail: str, fix: str) -> None:
        self.detail, self.fix = detail, fix
        super().__init__(f"{detail}; {fix}")


def preflight(
    config: PartyConfig | Path, *, against: Path | None = None, now: float | None = None
) -> tuple[Finding, ...]:
    """Check a party's files, its connection and the open queries. Answers no query.

    config: the configuration, or its file. against: another schema file to compare with. now: Unix seconds; default:
    the system's clock. Problems of the party are in the findings and raise no error.
    """
    run = _Run(now)
    try:
        run.config = PartyConfig.load(config) if isinstance(config, Path) else config
        run.add("configuration", f"party {run.config.name!r} of federation {run.config.federation!r}")
    except RadofedError as error:
        run.findings.append(Finding("configuration", False, str(error), "Correct the file."))
        return tuple(run.findings)
    run.files()
    if against is not None:
        run.step("schema-against", lambda: run.compare_schemas(against), needs=("schema",))
    run.connection()
    return tuple(run.findings)


@dataclass
class _Run:
    """The checks in order, and the results that later checks need."""

    now: float | None
    findings: list[Finding] = field(default_factory=list)
    config: PartyConfig = field(init=False)
    policy: Policy = field(init=False)
    schema: Schema = field(init=False)
    signing_key: SigningKey = field(init=False)
    federation_key: bytes = field(init=False)
    roster: Roster = field(init=False)
    served: Served = field(init=False)
    rows: int = 0
    # Names of failed checks that still produced what later checks need.
    provided: set[str] = field(default_factory=set)
    client: CoordinatorClient | None = None
    clock_ahead_s: float = 0.0

    def time(self) -> float:
        return time.time() if self.now is None else self.now

    def add(self, name: str, detail: str, fix: str = "") -> None:
        self.findings.append(Finding(name, True, detail, fix))

    def step(self, name: str, check: Callable[[], None], needs: tuple[str, ...] = ()) -> None:
        """Run a check, unless one that it needs has not passed."""
        passed = self.provided | {finding.name for finding in self.findings if finding.ok}
        missing = [need for need in needs if need not in passed]
        if missing:
            self.findings.append(Finding(name, False, f"it needs {', '.join(missing)}", ran=False))
            return
        try:
            check()
        except CheckFailedError as error:
            self.findings.append(Finding(name, False, error.detail, error.fix))
        except WireError as error:
            self.findings.append(Finding(name, False, error.public_sentence, error.hint))
        except RadofedError as error:
            self.findings.append(Finding(name, False, str(error), "Follow the message above, then check again."))
        except OSError as error:
            self.findings.append(Finding(name, False, str(error), "Check the path and its permissions."))

    # Checks of this machine.

    def files(self) -> None:
        self.step("policy", self._policy)
        self.step("schema", self._schema)
        self.step("data", self._data, needs=("schema",))
        self.step("dp-feat", self._dp_feat, needs=("policy", "data"))
        self.step("signing-key", self._signing_key)
        self.step("federation-key", self._federation_key)
        self.step("key-permissions", self._permissions)
        self.step("certificate", self._certificate)
        self.step("ledger", self._ledger, needs=("policy",))
        self.step("state-directory", self._state_directory)
        self.step("refusals", self._refusals)

    def _policy(self) -> None:
        self.policy = policy = Policy.load(self.config.policy)
        empty = [name for name, given in (("learners", policy.learners), ("designs", policy.designs)) if not given]
        advice = f"This policy refuses every query: fill in {' and '.join(empty)}." if empty else ""
        unbounded = [name for name in policy.designs if name in _UNBOUNDED_DESIGNS]
        if unbounded and not policy.limits.unbounded_queries:
            advice = f"{advice} unbounded_queries = 0 refuses every query of {' and '.join(unbounded)}.".strip()
        self.add(
            "policy",
            f"designs {', '.join(policy.designs) or 'none'}; {len(policy.learners)} learner(s); "
            f"{len(policy.accepted_members)} accepted member(s); smallest cohort {policy.members_needed(1)}",
            advice,
        )

    def _schema(self) -> None:
        self.schema = load_schema(self.config.schema_file)
        words = f"{self.schema.name!r}, {self.schema.d} coordinates, digest {self.schema.digest.hex()}"
        self.add("schema", words, advice_on_refusing(self.schema))

    def compare_schemas(self, other: Path) -> None:
        found = [f"{d.field}: here {d.mine}, there {d.theirs}" for d in differences(self.schema, load_schema(other))]
        if found:
            raise CheckFailedError("; ".join(found), f"Agree on one schema file; this one differs from {other}.")
        self.add("schema-against", f"the same as {other}")

    def _data(self) -> None:
        report = check_data(self.schema, self.config.table, id_column=self.config.id_column)
        self.rows = report.rows
        by = f"the column {self.config.id_column!r}" if self.config.id_column else _BY_PLACE
        words = f"{report.sentences()[0]}; rows to hold back from training are chosen by {by}"
        warnings = list(report.warnings)
        is_ordered = self.config.id_column is not None or "order by" in (self.config.query or "order by").casefold()
        if not is_ordered:
            warnings.append(_NO_ORDER)
        self.add("data", words, " ".join(f"{warning}." for warning in warnings))

    def _dp_feat(self) -> None:
        if "dp-feat" not in self.policy.designs:
            self.add("dp-feat", "the policy does not allow it")
            return
        limits = self.policy.limits
        delta, epsilon = limits.delta_per_query, limits.epsilon
        try:
            found = dp_feat_range(self.rows, delta=delta, epsilon=epsilon, most_rados=limits.rados_per_query)
        except PlanError as error:
            self.add("dp-feat", f"no query has a privacy bound: {error}", "Correct delta_per_query in the policy.")
            return
        at = f"at {self.rows} rows and delta {float(delta):g}"
        if found.one_rado is None:
            self.add(
                "dp-feat",
                f"{at} not even a query of 1 rado has a finite bound",
                f"Provide at least {found.rows_needed} rows, or a delta_per_query above {found.delta_needed:.2g}.",
            )
        elif not found.largest:
            self.add(
                "dp-feat",
                f"{at} even 1 rado costs epsilon {found.one_rado:.3g}; the policy allows {float(epsilon):g}",
                "Raise epsilon, or provide more rows.",
            )
        else:
            self.add(
                "dp-feat",
                f"{at} a first query of up to {found.largest} rado(s) costs at most epsilon {float(epsilon):g}",
            )

    def _signing_key(self) -> None:
        self.signing_key = SigningKey.load(self.config.signing_key)
        self.add("signing-key", f"fingerprint {fingerprint(self.signing_key.public_bytes)}")

    def _federation_key(self) -> None:
        self.federation_key = load_public_key(self.config.federation_key)
        self.add("federation-key", f"fingerprint {fingerprint(self.federation_key)}")

    def _permissions(self) -> None:
        secrets = (self.config.signing_key, self.config.tls.key)
        exposed = []
        for path in secrets:
            try:
                check_private(path)
            except ExposedKeyError as error:
                exposed.append(str(error))
        if exposed:
            raise CheckFailedError(" | ".join(exposed), "A party does not start with such a key.")
        self.add("key-permissions", "other users cannot read the keys")

    def _certificate(self) -> None:
        now = dt.datetime.fromtimestamp(self.time(), dt.UTC)
        certificate = self.config.tls.files.check(self.config.federation, Role.PARTY, self.config.name, now)
        days = (certificate.not_after - now).days
        self.add("certificate", f"{certificate.san}, expires in {days} days", certificate.expiry_warning(now))

    def _ledger(self) -> None:
        config, limits = self.config, self.policy.limits.of_ledger
        path = config.ledger_file
        if not path.exists() and head_path(path).exists():
            raise CheckFailedError(
                f"{path} is missing, and its head is there",
                "Put the newest ledger back, or the data officer runs `rado ledger acknowledge`.",
            )
        if not path.exists():
            self.add("ledger", f"{path} is created when the party first starts; limit {limits}")
            return
        owner = LedgerOwner(config.federation, config.name, config.source)
        ledger = Ledger.open(path, owner, limits, create=False)
        try:
            state = ledger.state(self.time())
            evidence = Witnessed(ledger.database).evidence()
            cause = (ledger.database.chain_faults() or [ledger.database.set_back()])[0]
        finally:
            ledger.database.close()
        if evidence is not None:
            cause = f"{evidence.source} showed an entry that this party signed and that its ledger does not have"
        if cause:
            raise CheckFailedError(
                f"this ledger was damaged or set back: {cause}. The party answers no query",
                "Keep the ledger and its .head file. The data officer runs `rado ledger acknowledge`.",
            )
        self.add("ledger", "; ".join(state.figures()), state.warning)

    def _state_directory(self) -> None:
        directory = self.config.state_directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            self.add("state-directory", f"{directory} is writable")

    def _refusals(self) -> None:
        since = self.time() - RECENT_REFUSALS_S
        same: dict[tuple[Code, str], list[Refused]] = {}
        for refused in reversed(self._kept_refusals()):
            if refused.at_unix_s >= since:
                same.setdefault((refused.code, refused.detail), []).append(refused)
        words = [_refusal_words(group) for group in same.values()]
        fixes = dict.fromkeys(_fix_for(code) for code, _ in same)
        self.add("refusals", " | ".join(words) or "none in the last 7 days", " ".join(fixes))

    def _kept_refusals(self) -> list[Refused]:
        config, path = self.config, self.config.state_directory / HISTORY_FILE
        if not path.exists():
            return []
        database = HistoryDatabase(path, federation=config.federation, party=config.name, create=False)
        try:
            return History(database).refusals()
        finally:
            database.close()

    # Checks of the connection and the coordinator.

    def connection(self) -> None:
        self.step("coordinator", self._coordinator, needs=("certificate",))
        self.step("tls", self._tls, needs=("coordinator",))
        try:
            self.step("health", self._health, needs=("tls",))
            self.step("roster", self._roster, needs=("tls", "federation-key"))
            self.step("clock", self._clock, needs=("roster",))
            self.step("membership", self._membership, needs=("roster", "signing-key"))
            self.step("accepted-members", self._accepted, needs=("roster", "policy"))
            self.step("queries", self._queries, needs=("roster", "schema", "health"))
        finally:
            if self.client is not None:
                self.client.close()

    def _coordinator(self) -> None:
        self.served = probe(self.config.coordinator, self.config.tls.files, timeout_s=PATIENCE_S)
        self.add("coordinator", f"{self.config.coordinator} is reachable")

    def _tls(self) -> None:
        self.served.check(self.config.federation, dt.datetime.fromtimestamp(self.time(), dt.UTC))
        self.client = CoordinatorClient(self.config.coordinator, self.config.tls.files, give_up_after_s=PATIENCE_S)
        self.add("tls", f"{self.served.version}, {self.served.san}, issued by this federation's authority")

    def _health(self) -> None:
        assert self.client is not None
        if not self.client.is_serving():
            raise CheckFailedError("the coordinator reports that it is not serving", "Ask the operator to check it.")
        self.add("health", "the coordinator is serving")

    def _roster(self) -> None:
        assert self.client is not None
        before = self.time()
        envelope, server_time = self.client.fetch_roster()
        # The network can have added at most half the call's duration.
        self.clock_ahead_s = (before + self.time()) / 2 - server_time
        self.roster = open_roster(envelope, self.federation_key)
        if self.roster.federation != self.config.federation:
            raise CheckFailedError(
                f"the roster is for federation {self.roster.federation!r}", "Correct federation or coordinator."
            )
        remembered = Rosters(
            self.config.state_directory,
            federation=self.config.federation,
            federation_key=self.federation_key,
            log=Log("party.check"),
        )
        try:
            remembered.check(envelope)
        except WireError as error:
            served, self.roster = self.roster, remembered.current
            # The later checks use the roster that the party keeps.
            self.provided.add("roster")
            other = "a different roster with" if served.version == self.roster.version else "roster"
            raise CheckFailedError(
                f"the coordinator serves {other} version {served.version}; this party has seen version "
                f"{self.roster.version} and keeps it",
                "Ask the operator why the coordinator went back (it may have lost its state) and to issue a higher "
                "version.",
            ) from error
        now, roster = self.time(), self.roster
        detail = f"version {roster.version}, {len(roster.parties)} parties, expires: {roster.expiry_date}"
        if roster.is_expired(now):
            self.provided.add("roster")
            raise CheckFailedError(detail, f"{roster.expiry_warning(now)}.")
        self.add("roster", detail, roster.expiry_warning(now))

    def _clock(self) -> None:
        ahead = self.clock_ahead_s
        detail = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the coordinator's clock"
        if abs(ahead) > FURTHEST_CLOCK_S:
            raise CheckFailedError(f"this clock is {detail}", "Set this machine's clock, for example with NTP.")
        self.add("clock", detail)

    def _membership(self) -> None:
        member = self.roster.find(self.config.name, Role.PARTY)
        if member is None:
            raise CheckFailedError(
                f"the roster has no party {self.config.name!r}", "Ask the operator to add this party to the roster."
            )
        if member.signing_key != self.signing_key.public_bytes:
            raise CheckFailedError(
                f"the roster has key {fingerprint(member.signing_key)} for this party; signing_key is a different key",
                "Use the key that the operator was given, or ask the operator for a roster with the current key.",
            )
        self.add("membership", "the roster lists this party with this signing key")

    def _accepted(self) -> None:
        others = [member for member in self.roster.parties if member.name != self.config.name]
        strangers = [m for m in others if not self.policy.count_accepted(self.roster, self.config.name, (m.name,))]
        learners = [m for m in self.roster.members if m.role is Role.LEARNER]
        pinned = {(learner.name, learner.signing_key) for learner in self.policy.learners}
        unpinned = [m for m in learners if (m.name, fingerprint(m.signing_key).replace(":", "")) not in pinned]
        advice = [
            f'After {m.name} confirms it over another channel, add "{fingerprint(m.signing_key)}" to accepted_members.'
            for m in strangers
        ] + [
            f'To let {m.name} send queries, pin signing_key = "{fingerprint(m.signing_key)}" under [[learners]].'
            for m in unpinned
        ]
        if self.policy.required_witnesses > len(others) - len(strangers):
            advice.append(
                f"required_witnesses is {self.policy.required_witnesses}: this party answers no query until so many "
                "accepted members confirm its ledger."
            )
        self.add(
            "accepted-members",
            f"{len(others) - len(strangers)} of {len(others)} other parties accepted, "
            f"{len(learners) - len(unpinned)} of {len(learners)} learners pinned",
            " ".join(advice),
        )

    def _queries(self) -> None:
        assert self.client is not None
        batch = self.client.fetch_work(0, 0)
        open_work = [work for work in batch.work if not work.phase.is_terminal]
        wrong, fixes = [], []
        for work in open_work:
            name = f"query {work.query_id.hex()[:16]}"
            try:
                query = open_query(work.query, self.roster, now_unix_s=self.time()).query
            except RadofedError as error:
                said, hint = (error.public_sentence, error.hint) if isinstance(error, WireError) else (str(error), "")
                wrong.append(f"{name} cannot be opened: {said}")
                fixes.append(hint)
                continue
            found = [f"{d.field}: here {d.mine}, there {d.theirs}" for d in differences(self.schema, query.schema)]
            if found:
                wrong.append(f"{name} of {query.learner}: {'; '.join(found)}")
                fixes.append(_fix_for(Code.SCHEMA_MISMATCH))
        if batch.unreadable:
            wrong.append(f"{batch.unreadable} could not be read")
            fixes.append("Update the older of the two nodes.")
        if wrong:
            raise CheckFailedError(" | ".join(wrong), " ".join(filter(None, dict.fromkeys(fixes))))
        self.add("queries", f"{len(open_work)} open, all with this party's schema" if open_work else "none open")


def _refusal_words(group: Sequence[Refused]) -> str:
    """Describe refusals that have one reason; newest first."""
    last = group[0]
    when = dt.datetime.fromtimestamp(last.at_unix_s, dt.UTC)
    times = f", {len(group)} times, last" if len(group) > 1 else ""
    return (
        f"{last.code.value}{times} at {when:%Y-%m-%d %H:%M:%S} UTC, query {last.query_id[:16]}: "
        f"{last.detail or CATALOGUE[last.code].sentence}"
    )


def _fix_for(code: Code) -> str:
    """What a party that refused with this code can do."""
    match code:
        case Code.SCHEMA_MISMATCH:
            return "Agree with the learner on one schema file."
        case Code.COHORT_EXCLUDED | Code.ATTEMPT_MISMATCH:
            return "Ask the operator to check the coordinator: it differs from what this party answered."
        case Code.UNAVAILABLE:
            return "Read this party's log for the cause."
        case _ if code.value.startswith("POLICY_") or code is Code.BUDGET_EXCEEDED:
            return "The data officer decides whether to allow such queries."
        case _:
            return CATALOGUE[code].hint
