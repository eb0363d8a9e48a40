"""Checks of a party's own files and stored state; the findings of `rado party check`."""

import datetime as dt
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dpcore.accounting.dp_feat import dp_feat_range
from dpcore.errors import PlanError, RadofedError
from dpcore.numbers.rationals import upper_digits
from dpcore.records.shared_schema import SharedSchema, schema_words, shared_differences
from parties.approval.decision_files import DecisionFiles
from parties.approval.decisions import Person, is_user
from parties.client import CoordinatorClient, Served
from parties.config import PartyConfig
from parties.data.dataset import check as check_data
from parties.data.dataset import recode_of
from parties.data.load_report import LoadReport
from parties.data.row_guard import advice as advice_on_refusing
from parties.database import LedgerOwner
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.history.history import History, Refused
from parties.ledger.head import head_path
from parties.ledger.ledger import Ledger
from parties.ledger.witnessed import Witnessed
from parties.policy import Policy
from radobase.failure import in_words
from radobase.local_status import NotRunningError, read_status
from radobase.printing import amount, json_text, local_time
from radobase.reading import ExposedKeyError, check_private
from radobase.schema_files import load_shared
from radobase.tables.recoding import Recode
from wire.envelopes import SigningKey, fingerprint, load_public_key, spoken
from wire.errors import CATALOGUE, Code, WireError
from wire.roster import Role, Roster

# Findings of `rado party check`, and what later checks need of earlier ones.


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    name: str
    ok: bool
    """The check passed; a `fix` that is not empty is then advice."""
    detail: str
    fix: str = ""
    """How to fix the problem."""
    ran: bool = True
    """False if the check did not run, because a check that it depends on failed."""

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


@dataclass
class Run:
    """The checks in order, and the results that later checks need."""

    now: float | None
    findings: list[Finding] = field(default_factory=list)
    config: PartyConfig = field(init=False)
    policy: Policy = field(init=False)
    schema: SharedSchema = field(init=False)
    recode: Recode | None = field(init=False)
    signing_key: SigningKey = field(init=False)
    federation_key: bytes = field(init=False)
    roster: Roster = field(init=False)
    coordinator: str = field(init=False)
    """Where it is dialled."""
    served: Served = field(init=False)
    rows: int = 0
    report: LoadReport = field(init=False)
    # Of the rows in the configured table; None if it could not be read.
    rows_digest: bytes | None = None
    # Names of failed checks that still produced what later checks need.
    provided: set[str] = field(default_factory=set)
    client: CoordinatorClient | None = None
    clock_ahead_s: float = 0.0

    def time(self) -> float:
        """Unix seconds."""
        return time.time() if self.now is None else self.now

    def add(self, name: str, detail: str, fix: str = "") -> None:
        """A check passed. fix: advice."""
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


_NO_ORDER = (
    "a query need not give its rows in the same order every time, and then others are held back: name an id_column, or "
    "end the query with ORDER BY and a unique column"
)
_NOT_LISTED = ("not among", "in neither")
_SPELLINGS = "`rado party spellings` lists the texts that the schema does not, and drafts what recodes them"
_BY_PLACE = (
    "their place in the table: if it is sorted, or rows are added before others, rows that were trained on may be held "
    "back later (id_column in the configuration avoids this)"
)
# Changes of cells that are listed although they are few.
_MOST_CHANGES = 5
# Designs that never bound what a release reveals about whole records.
_UNBOUNDED_DESIGNS = frozenset({"plain", "dp-feat", "dp-feat-joint"})


def check_files(run: Run) -> None:
    """All of these, in order."""
    run.step("policy", lambda: _policy(run))
    run.step("decisions", lambda: _decisions(run), needs=("policy",))
    run.step("studies", lambda: _studies(run), needs=("policy",))
    run.step("schema", lambda: _schema(run))
    run.step("recode", lambda: _recode(run), needs=("schema",))
    run.step("data", lambda: _data(run), needs=("schema", "recode"))
    run.step("dp-feat", lambda: _dp_feat(run), needs=("policy", "data"))
    run.step("signing-key", lambda: _signing_key(run))
    run.step("federation-key", lambda: _federation_key(run))
    run.step("key-permissions", lambda: _permissions(run))
    run.step("certificate", lambda: _certificate(run))


def _policy(run: Run) -> None:
    run.policy = policy = Policy.load(run.config.policy)
    empty = [name for name, given in (("learners", policy.learners), ("designs", policy.designs)) if not given]
    ways = ", or take one of `rado party policy`" if "designs" in empty else ""
    advice = f"This policy refuses every query: fill in {' and '.join(empty)}{ways}." if empty else ""
    unbounded = [name for name in policy.designs if name in _UNBOUNDED_DESIGNS]
    if unbounded and not policy.limits.unbounded_queries:
        advice = f"{advice} unbounded_queries = 0 refuses every query of {' and '.join(unbounded)}.".strip()
    if policy.limits.person is not None and run.config.id_column is None:
        unknown = "It limits persons, and no column says whose rows are: name an id_column in the configuration."
        advice = f"{advice} {unknown}".strip()
    run.add(
        "policy",
        f"designs {', '.join(policy.designs) or 'none'}; {amount(len(policy.learners), 'learner')}; "
        f"{amount(len(policy.accepted_members), 'accepted member')}; cohorts of at least {policy.members_needed(1)}",
        advice,
    )


def _decisions(run: Run) -> None:
    """Where people decide, and whether there can be as many as the policy asks for."""
    files, approval = DecisionFiles.of(run.config), run.policy.approval
    advice = _advice_on_approval(run.policy)
    if files is not None:
        files.check()
        who = ", ".join(approval.users) or "everybody who may write there"
        run.add("decisions", f"other users of this machine decide in {files.directory}: {who}", advice)
    elif approval.asks:
        if approval.approvers > 1:
            advice = (
                f"{advice} approvers = {approval.approvers} needs as many users of this machine: name a directory by "
                "decisions in party.toml, in which they decide without access to this party's state."
            ).strip()
        run.add("decisions", "people decide as this node's user or as root", advice)


def _studies(run: Run) -> None:
    """Which studies are answered, and rules about them that cannot hold; nothing of a policy that names none."""
    policy, limits = run.policy, run.policy.limits
    if not (policy.study_required or policy.studies or limits.studies or limits.per_study):
        return
    names = ", ".join(json_text(each.protocol_number) for each in policy.studies) or "every study"
    required = "; queries without a study are refused" if policy.study_required else ""
    own = {f"study {json_text(number)}": limit for number, limit in limits.studies.items()}
    own |= {"each other study" if own else "each study": limits.per_study} if limits.per_study else {}
    budgets = "".join(f"; {name}: epsilon {float(limit.epsilon):g}" for name, limit in own.items())
    pinned, advice = {learner.name for learner in policy.learners}, []
    for each in policy.studies:
        if odd := [name for name in each.learners if name not in pinned]:
            number = json_text(each.protocol_number)
            advice.append(
                f"Study {number} names {' and '.join(odd)}, which the policy does not admit: correct learners."
            )
    for name, limit in own.items():
        if limit.epsilon >= limits.epsilon and limit.delta >= limits.delta:
            advice.append(f"The budget of {name} is not smaller than the party's, which alone counts then: lower it.")
        if limit.delta < 2 * limits.delta_per_query:
            advice.append(f"The delta of {name} is below twice delta_per_query: it admits few answers. Raise it.")
    run.add("studies", f"{names}{required}{budgets}", " ".join(advice))


def _advice_on_approval(policy: Policy) -> str:
    """What the rules name and is not there: a misspelt learner does not wait, and a misspelt user never decides."""
    approval, advice = policy.approval, []
    pinned = {learner.name for learner in policy.learners}
    if odd := [name for name in approval.learners if name not in pinned]:
        advice.append(f"The policy admits no learner called {' or '.join(odd)}: correct learners in [approval].")
    if odd := [name for name in approval.users if not is_user(name)]:
        advice.append(f"This machine has no user {' or '.join(odd)}: correct users in [approval].")
    if approval.users and len(approval.users) < approval.approvers:
        advice.append(f"{approval.approvers} users must approve, and only {len(approval.users)} may: add to users.")
    signed = sum(Person(name).is_signed_on for name in approval.users)
    if len(approval.users) >= approval.approvers > max(signed, len(approval.users) - signed):
        advice.append(
            f"{approval.approvers} users must approve, and who signs on does not count beside a user of this machine: "
            "list enough of one kind in users."
        )
    return " ".join(advice)


def _schema(run: Run) -> None:
    run.schema = load_shared(run.config.schema_file)
    words = schema_words(run.schema)
    run.add("schema", words, advice_on_refusing(run.schema))


def compare_schemas(run: Run, other: Path) -> None:
    """Compare the party's schema with another file."""
    differing = shared_differences(run.schema, load_shared(other))
    found = [f"{d.field}: here {d.mine}, there {d.theirs}" for d in differing]
    if found:
        raise CheckFailedError("; ".join(found), f"Agree on one schema file; this one differs from {other}.")
    run.add("schema-against", f"the same as {other}")


def _recode(run: Run) -> None:
    run.recode = recode_of(run.config, run.schema)
    if run.recode is None:
        run.provided.add("recode")
        return
    columns = ", ".join(run.recode.columns) or "no column"
    place = run.config.recode if isinstance(run.config.recode, Path) else "in the configuration"
    run.add("recode", f"{place}: {columns}; digest {run.recode.digest.hex()}")


def _data(run: Run) -> None:
    ids, epochs = run.config.id_column, run.config.epoch_column
    report = check_data(run.schema, run.config.table, id_column=ids, epoch_column=epochs, recode=run.recode)
    run.rows, run.rows_digest, run.report = report.rows, report.digest, report
    by = f"the column {run.config.id_column!r}" if run.config.id_column else _BY_PLACE
    words = f"{report.sentences()[0]}; rows to hold back from training are chosen by {by}"
    if report.recoded:
        words = f"{words}; {report.recoded_sentence}"
    if report.epochs:
        words = f"{words}; {amount(len(report.epochs) - ('' in report.epochs), 'epoch')} of rows"
    # Those of many cells are among the warnings.
    few = [change.clause for change in report.changes if not change.is_many]
    words = "; ".join([words, *few[:_MOST_CHANGES]])
    if len(few) > _MOST_CHANGES:
        words = f"{words}; {len(few) - _MOST_CHANGES} more, see `rado schema check`"
    warnings = list(report.warnings)
    is_ordered = run.config.id_column is not None or "order by" in (run.config.query or "order by").casefold()
    if not is_ordered:
        warnings.append(_NO_ORDER)
    if run.config.cluster is not None:
        again = run.config.cluster.reading_again(4 * run.schema.first.d * report.rows)
        warnings += [again] if again else []
    if any(words in change.found for change in report.changes if change.is_many for words in _NOT_LISTED):
        warnings.append(_SPELLINGS)
    run.add("data", words, " ".join(f"{warning[0].upper()}{warning[1:]}." for warning in warnings))


def _dp_feat(run: Run) -> None:
    if "dp-feat" not in run.policy.designs:
        run.add("dp-feat", "the policy does not allow it")
        return
    limits = run.policy.limits
    delta, epsilon = limits.delta_per_query, limits.epsilon
    try:
        found = dp_feat_range(run.rows, delta=delta, epsilon=epsilon, most_rados=limits.rados_per_query)
    except PlanError as error:
        run.add("dp-feat", f"no query has a privacy bound: {error}", "Correct delta_per_query in the policy.")
        return
    at = f"at {amount(run.rows, 'row')} and delta {float(delta):g}"
    if found.one_rado is None:
        run.add(
            "dp-feat",
            f"{at} not even a query of 1 rado has a finite bound",
            f"Provide at least {found.rows_needed} rows, or a delta_per_query above "
            f"{upper_digits(found.delta_needed, 2)}.",
        )
    elif not found.largest:
        run.add(
            "dp-feat",
            f"{at} even 1 rado costs epsilon {upper_digits(found.one_rado, 4)}; the policy allows {float(epsilon):g}",
            "Raise epsilon, or provide more rows.",
        )
    else:
        run.add(
            "dp-feat",
            f"{at} a first query of up to {amount(found.largest, 'rado')} costs at most epsilon {float(epsilon):g}",
        )


def _signing_key(run: Run) -> None:
    run.signing_key = SigningKey.load(run.config.signing_key, run.config.federation)
    key = run.signing_key.public_bytes
    run.add("signing-key", f"fingerprint {fingerprint(key)}, digits to read to other members: {spoken(key)}")


def _federation_key(run: Run) -> None:
    run.federation_key = load_public_key(run.config.federation_key)
    run.add("federation-key", f"fingerprint {fingerprint(run.federation_key)}")


def _permissions(run: Run) -> None:
    secrets = (run.config.signing_key, run.config.tls.key)
    exposed = []
    for path in secrets:
        try:
            check_private(path)
        except ExposedKeyError as error:
            exposed.append(str(error))
    if exposed:
        raise CheckFailedError(" | ".join(exposed), "A party does not start with such a key.")
    run.add("key-permissions", "other users cannot read the keys")


def _certificate(run: Run) -> None:
    now = dt.datetime.fromtimestamp(run.time(), dt.UTC)
    certificate = run.config.tls.files.check(run.config.federation, Role.PARTY, run.config.name, now)
    days = (certificate.not_after - now).days
    run.add("certificate", f"{certificate.san}, expires in {amount(days, 'day')}", certificate.expiry_warning(now))


# Checks of what a party stored: its ledger, its state directory, its refusals.


_UNVERIFIED_FIX: Final = (
    "Such queries get no answer, and their learner sees this party as silent. If the learner has joined or has another "
    "key, ask the operator whether the coordinator serves the newest roster; otherwise ask what the coordinator shows."
)
RECENT_REFUSALS_S: Final = 7 * 86_400.0


def check_state(run: Run) -> None:
    """All of these, in order."""
    run.step("ledger", lambda: _ledger(run), needs=("policy",))
    run.step("state-directory", lambda: _state_directory(run))
    run.step("refusals", lambda: _refusals(run))
    run.step("unverified", lambda: _unverified(run))


def _ledger(run: Run) -> None:
    config, limits = run.config, run.policy.limits.of_ledger
    path = config.ledger_file
    if not path.exists() and head_path(path).exists():
        raise CheckFailedError(
            f"{path} is missing, and its head is there",
            "Put the newest ledger back, or the data officer runs `rado ledger acknowledge`.",
        )
    if not path.exists():
        run.add("ledger", f"{path} is created when the party first starts; limit {limits}")
        return
    owner = LedgerOwner(config.federation, config.name, config.source)
    ledger = Ledger.open(path, owner, limits, create=False)
    try:
        state = ledger.state(run.time())
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
    run.add("ledger", "; ".join(state.figures()), state.warning)


def _state_directory(run: Run) -> None:
    directory = run.config.state_directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        sentence = f"{directory}: cannot be written ({in_words(error)})"
        raise CheckFailedError(sentence, "Follow the message above, then check again.") from error
    run.add("state-directory", f"{directory} is writable")


def _refusals(run: Run) -> None:
    since = run.time() - RECENT_REFUSALS_S
    same: dict[tuple[Code, str], list[Refused]] = {}
    for refused in reversed(_kept_refusals(run)):
        if refused.at_unix_s >= since:
            same.setdefault((refused.code, refused.detail), []).append(refused)
    words = [_refusal_words(group) for group in same.values()]
    fixes = dict.fromkeys(fix_for(code) for code, _ in same)
    run.add("refusals", " | ".join(words) or "none in the last 7 days", " ".join(fixes))


def _unverified(run: Run) -> None:
    """What the running node was shown that no member signed: it answers none of it, so no one else says so."""
    try:
        shown: dict[str, Any] = read_status(run.config.state_directory)["unverified"]
    except NotRunningError:
        run.add("unverified", "no node runs; it counts what it is shown and cannot verify while it runs")
        return
    entries: dict[str, int] = shown["entries"]
    if not entries:
        run.add("unverified", "all that the running node was shown verified")
        return
    words = ", ".join(f"{count} {code}" for code, count in entries.items())
    sentence = f"shown to the running node and not verified: {words}; last at {local_time(shown['last_unix_s'])}"
    run.add("unverified", sentence, _UNVERIFIED_FIX)


def _kept_refusals(run: Run) -> list[Refused]:
    config, path = run.config, run.config.state_directory / HISTORY_FILE
    if not path.exists():
        return []
    database = HistoryDatabase(path, federation=config.federation, party=config.name, create=False)
    try:
        return History(database).refusals()
    finally:
        database.close()


def _refusal_words(group: Sequence[Refused]) -> str:
    """Describe refusals that have one reason; newest first."""
    last = group[0]
    when = dt.datetime.fromtimestamp(last.at_unix_s, dt.UTC)
    times = f", {len(group)} times, last" if len(group) > 1 else ""
    return (
        f"{last.code.value}{times} at {when:%Y-%m-%d %H:%M:%S} UTC, query {last.query_id[:16]}: "
        f"{last.detail or CATALOGUE[last.code].sentence}"
    )


def fix_for(code: Code) -> str:
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
