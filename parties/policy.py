"""A party's policy file, `policy.toml`: what its data officer allows. Everything else is refused."""

import hashlib
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dpcore.accounting.filters import PrivacyLimit
from dpcore.accounting.protection import WHOLE
from dpcore.paillier.mask_graph import MaskGraph, is_complete
from dpcore.predicates.expressions import PredicateError
from dpcore.predicates.notation import parse
from parties.ledger.limits import LedgerLimits
from radobase.configuration import Configuration
from radobase.printing import json_text
from wire.envelopes import key_id
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query
from wire.roster import KeyFingerprint, Role, Roster
from wire.study import MAX_PROTOCOL_NUMBER
from wire.texts import is_purpose

# Within double precision, in which limits are reported.
_DECIMAL = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")


def _exact(value: Any) -> Fraction:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ValueError('write an exact decimal in quotation marks, such as "0.5" or "1e-6"')
    return Fraction(value)


Exact = Annotated[Fraction, BeforeValidator(_exact)]
"""A non-negative decimal, given as text so that it is exact."""

DesignName = Literal[
    "plain",
    "dp-feat",
    "dp-feat-joint",
    "fixed-support",
    "gaussian",
    "moments",
    "statistic",
    "local-statistic",
    "gradient",
]
"""Kinds of query that a policy may allow, by name."""


def _protocol_number(text: str) -> str:
    if len(text) > MAX_PROTOCOL_NUMBER or not is_purpose(text):
        raise ValueError(f"a protocol number has 1 to {MAX_PROTOCOL_NUMBER} printable characters, without outer spaces")
    return text


class PinnedLearner(Configuration):
    """A learner that may send queries, with the fingerprint of the key that must sign them."""

    name: str
    """Name of the learner, as in the roster."""
    signing_key: KeyFingerprint
    """Fingerprint of the learner's signing key."""
    requesters: tuple[str, ...] = ()
    """People who ask with this key: users of the operating system, or names. None of them decides on its queries."""


class ScopeLimit(Configuration):
    """Limit on the composition of all releases in one scope."""

    epsilon: Exact
    """Largest epsilon of the composition."""
    delta: Annotated[Exact, Field(lt=1)]
    """Delta of the composition, below 1. Give at least twice `delta_per_query`."""


class PolicyLimits(Configuration):
    """Privacy budget of the data source, over all learners, and limits of one query.

    `epsilon` and `delta` hold in each scope separately: persons, whole records, each source column, each feature's
    own values.
    """

    epsilon: Exact = Fraction(0)
    """Largest epsilon over the lifetime of the data source and all learners, in each scope. Provisioned files
    have `"10"`."""
    delta: Annotated[Exact, Field(lt=1)] = Fraction(0)
    """Delta that belongs to `epsilon`, below 1. Give at least twice `delta_per_query`. Provisioned files have
    `"1e-5"`."""
    person: ScopeLimit | None = None
    """Limit for whole persons, with all their rows (`id_column` in `party.toml`). With it, queries that protect records
    only are refused: nothing bounds what they tell about a person. Default: `epsilon` and `delta` for the queries that
    protect persons, beside others that do not."""
    record: ScopeLimit | None = None
    """Replaces `epsilon` and `delta` for whole records."""
    columns: dict[str, ScopeLimit] = Field(default_factory=dict)
    """Replaces `epsilon` and `delta` for the source column of this name."""
    features: dict[str, ScopeLimit] = Field(default_factory=dict)
    """Replaces `epsilon` and `delta` for the feature of this name, for its own values."""
    per_learner: ScopeLimit | None = None
    """Additional limit in every scope, for each learner."""
    per_day: ScopeLimit | None = None
    """Additional limit in every scope, for any 24 hours by this party's clock."""
    per_study: ScopeLimit | None = None
    """Additional limit in every scope, for each study by its protocol number, of all learners. A learner may state
    another number: it bounds those that state the right one, or those under `[[studies]]`."""
    studies: dict[Annotated[str, AfterValidator(_protocol_number)], ScopeLimit] = Field(default_factory=dict)
    """Replaces `per_study` for the study of this protocol number."""
    composition: Literal["renyi", "gaussian"] = "renyi"
    """How attempts add up. `"gaussian"`: in Gaussian differential privacy. It admits a fifth more Gaussian answers, and
    refuses what has no mu: rados except `gaussian` without a support, and everything beside a charge of an earlier
    version. Choose it before the first query: a later change is a new limit beside the former one."""
    unbounded_queries: int = Field(default=0, ge=0)
    """Largest number of charged attempts without a bound for whole records: `plain`, every `dp-feat`, and
    `fixed-support` without noise."""
    rados_per_query: int = Field(default=1000, ge=1)
    """Largest number of rados in one query."""
    predicates_per_query: int = Field(default=10_000, ge=1)
    """Largest number of predicates in one query."""
    map_terms_per_query: int = Field(default=500, ge=0)
    """Largest number of terms of a query's feature map; 0 refuses every feature map."""
    delta_per_query: Exact = Fraction(1, 1_000_000)
    """Largest delta of one query."""
    attempts_per_query: int = Field(default=3, ge=1)
    """Largest number of attempts of one query. Each attempt that uploads is charged."""
    lifetime_per_query_s: int = Field(default=7 * 24 * 3600, ge=1)
    """Longest time from a query's creation to its expiry, in seconds. A reservation lapses five minutes later."""

    @property
    def of_ledger(self) -> LedgerLimits:
        """The limits of the data source as the ledger represents them."""

        def exact(limit: ScopeLimit | PolicyLimits) -> PrivacyLimit:
            return PrivacyLimit(limit.epsilon, limit.delta, self.composition == "gaussian")

        return LedgerLimits(
            lifetime=exact(self),
            unbounded_events=self.unbounded_queries,
            person=None if self.person is None else exact(self.person),
            record=None if self.record is None else exact(self.record),
            columns={name: exact(limit) for name, limit in self.columns.items()},
            features={name: exact(limit) for name, limit in self.features.items()},
            per_learner=None if self.per_learner is None else exact(self.per_learner),
            per_day=None if self.per_day is None else exact(self.per_day),
            per_study=None if self.per_study is None else exact(self.per_study),
            studies={number: exact(limit) for number, limit in self.studies.items()},
        )


class AllowedStudy(Configuration):
    """A study whose queries are answered."""

    protocol_number: Annotated[str, AfterValidator(_protocol_number)]
    """The number that queries of it state, character by character."""
    digests: tuple[KeyFingerprint, ...] = ()
    """Digests of what learners may state of it, as `rado party studies` shows them. Default: whatever they state with
    its number."""
    learners: tuple[str, ...] = ()
    """Learners that may ask within it. Default: all under `[[learners]]`."""


def _predicate(text: str) -> str:
    try:
        parse(text)
    except PredicateError as error:
        raise ValueError(str(error)) from error
    return text


class DataLimits(Configuration):
    """How much the party's rows may change before a person has to accept them (`rado party accept-rows`)."""

    most_unusable_rows: Annotated[Exact, Field(le=1)] = Fraction(1, 2)
    """Largest share of rows that may become zero vectors, by the schema's policies for missing and unknown values.
    `"1"` allows any."""
    largest_drop_in_rows: Annotated[Exact, Field(le=1)] = Fraction(1, 4)
    """Largest share by which rows, or usable rows, may be fewer than when the party answered last. `"1"` allows any."""
    largest_rise_in_changed_cells: Annotated[Exact, Field(le=1)] = Fraction(1, 4)
    """Largest share of a feature's cells by which more may be replaced, set to 0 or clipped by the schema's policies
    than when the party answered last. `"1"` allows any."""


class ApprovalRules(Configuration):
    """Which queries wait for people's decisions. A query waits if any rule says so; without a rule, none waits."""

    everything: bool = False
    """Whether every query waits."""
    designs: tuple[DesignName, ...] = ()
    """Kinds of query that wait."""
    learners: tuple[str, ...] = ()
    """Learners whose queries wait."""
    epsilon_at_least: Exact | None = None
    """A query waits if it, in all attempts that it allows, and what its learner spent since people last approved a
    query of it add up to at least this epsilon, or if it has no bound for whole records. Default: none waits for its
    cost."""
    admitted_predicates: tuple[Annotated[str, AfterValidator(_predicate)], ...] | None = None
    """Statistics wait unless each of their predicates is on this list. Default: none waits for its predicates."""
    approvers: int = Field(default=1, ge=1, le=10)
    """Number of people who must approve, each as another user of the operating system. One refusal refuses the
    query."""
    users: tuple[str, ...] = ()
    """Users of the operating system who decide. Default: all who may write the state directory, or the directory that
    `decisions` in `party.toml` names. Who signs on at a console behind a proxy is `"sign-on:IDENTITY"`."""
    names: bool = False
    """Whether a person gives a name with a decision, in addition to the operating system's user, which alone tells
    people apart."""

    @property
    def asks(self) -> bool:
        """Whether some query may wait."""
        lists = (self.designs, self.learners, self.epsilon_at_least, self.admitted_predicates)
        return self.everything or any(each is not None and each != () for each in lists)


class HistoryLimits(Configuration):
    """How long a party keeps what it was asked."""

    days: int = Field(default=3650, ge=1)
    """Days for which a query, what became of it and who decided are kept. Charges stay in the ledger."""
    predicates_days: int = Field(default=365, ge=0)
    """Days for which the signed query is kept, with its predicates and purpose, which may name people. Later only its
    digest, its kind and its size are left."""


class Policy(Configuration):
    """Contents of `policy.toml`: the queries that a party answers. An empty file refuses everything."""

    accepted_members: tuple[KeyFingerprint, ...] = ()
    """Fingerprints of the other parties that count towards a cohort."""
    learners: tuple[PinnedLearner, ...] = ()
    """Learners that may send queries, one `[[learners]]` table each."""
    designs: tuple[DesignName, ...] = ()
    """Kinds of query that are answered."""
    allow_unprotected: bool = False
    """Whether to answer queries that leave whole records unprotected: `plain`, every `dp-feat`, and `fixed-support`
    without noise."""
    smallest_cohort: int = Field(default=3, ge=1)
    """Fewest accepted members of a cohort, this party included."""
    assumed_colluders: int = Field(default=1, ge=0)
    """c, the number of accepted members that are assumed to collude with coordinator and learner. A cohort needs
    `max(c + 2, h + c, smallest_cohort)` accepted members, h being the query's `honest_parties`."""
    purpose_required: bool = False
    """Whether to refuse queries that state no purpose, neither their own nor that of a study. What it says is for
    people to judge: nothing checks it."""
    study_required: bool = False
    """Whether to refuse queries that name no study."""
    studies: tuple[AllowedStudy, ...] = ()
    """Studies whose queries are answered, one `[[studies]]` table each. Without one, those of every study are."""
    required_witnesses: int = Field(default=1, ge=0)
    """Number of accepted members that must confirm after each start that this party's ledger is not an older copy,
    before the party answers a query. 0 answers at once: a restored copy of the whole machine may then exceed the limits
    unnoticed."""
    limits: PolicyLimits = PolicyLimits()
    """Privacy budget of the data source and limits of one query."""
    data: DataLimits = DataLimits()
    """How much the rows may change before a person has to accept them."""
    approval: ApprovalRules = ApprovalRules()
    """Which queries wait for people's decisions."""
    history: HistoryLimits = HistoryLimits()
    """How long this party keeps what it was asked."""

    @model_validator(mode="after")
    def _check_studies(self) -> "Policy":
        numbers = [each.protocol_number for each in self.studies]
        if twice := next((number for number in numbers if numbers.count(number) > 1), None):
            raise ValueError(f"study {twice!r} is listed twice: give each protocol number one [[studies]] table")
        if unknown := [number for number in self.limits.studies if numbers and number not in numbers]:
            raise ValueError(
                f"limits.studies names {unknown[0]!r}, which no [[studies]] table allows: correct one of them"
            )
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of all values, in hexadecimal: policies with the same digest allow the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def requesters(self, learner: str) -> tuple[str, ...]:
        """The people who ask with a learner's key."""
        return tuple(name for pinned in self.learners if pinned.name == learner for name in pinned.requesters)

    def members_needed(self, honest_parties: int) -> int:
        """Fewest accepted members of a cohort, the party itself included: max(c + 2, h + c, smallest_cohort)."""
        c = self.assumed_colluders
        return max(c + 2, honest_parties + c, self.smallest_cohort)

    def count_accepted(self, roster: Roster, own_name: str, names: Iterable[str]) -> int:
        """How many of these parties of the roster this party has accepted, itself included."""
        return len(self.accepted(roster, own_name, names))

    def accepted(self, roster: Roster, own_name: str, names: Iterable[str]) -> frozenset[str]:
        """Those of these parties of the roster that this party has accepted, itself included."""
        accepted = set(self.accepted_members)
        members = (roster.find(name, Role.PARTY) for name in set(names))
        return frozenset(
            member.name
            for member in members
            if member is not None and (member.name == own_name or key_id(member.signing_key).hex() in accepted)
        )


def check_query(policy: Policy, opened: OpenedQuery, roster: Roster, own_name: str) -> None:
    """Refuse a query that the policy does not allow, before anything is computed for it.

    Raises WireError(POLICY_LEARNER, POLICY_DESIGN, POLICY_UNPROTECTED, UNIT_REFUSED, POLICY_PURPOSE, POLICY_STUDY,
    POLICY_LIMITS, POLICY_COHORT or MASKS_TOO_FEW).
    """
    query = opened.query
    pinned = {(learner.name, learner.signing_key) for learner in policy.learners}
    if (query.learner, opened.envelope.key_id.hex()) not in pinned:
        raise WireError(Code.POLICY_LEARNER, f"The policy pins no key of {query.learner!r} that made this signature.")
    design = query.kind.name
    if design not in policy.designs:
        raise WireError(Code.POLICY_DESIGN, f"It is {design!r}.")
    # Rados without noise on every coordinate reveal records (docs/threat-model-details.md, 4.4 and 4.5).
    if query.kind.scope not in WHOLE and not policy.allow_unprotected:
        raise WireError(Code.POLICY_UNPROTECTED, f"It is {design!r}.")
    if policy.limits.person is not None and query.persons is None:
        raise WireError(Code.UNIT_REFUSED, f"It is {design!r}, and its unit of privacy is a record.")
    if policy.purpose_required and not query.purpose and query.study is None:
        raise WireError(Code.POLICY_PURPOSE)
    _check_study(policy, query)
    _check_limits(policy.limits, query)
    needed = policy.members_needed(query.honest_parties)
    if query.cohort_min < needed:
        raise WireError(
            Code.POLICY_COHORT, f"cohort_min is {query.cohort_min} and this party's policy requires {needed}."
        )
    asked = sum(query.asks(member.name) for member in roster.parties)
    possible = policy.count_accepted(roster, own_name, (m.name for m in roster.parties if query.asks(m.name)))
    if possible < needed:
        raise WireError(
            Code.POLICY_COHORT,
            f"This party accepts {possible} members of those that are asked, and its policy requires {needed}.",
        )
    # Later, with a cohort, the others would have to pay for an attempt that this party refuses.
    _check_strangers(policy, query, asked - possible)
    largest = min(asked, query.max_parties)
    _check_neighbours(query, largest, min(possible, largest))
    _check_vanishing(policy, query, largest, min(asked - possible, largest))


def _check_study(policy: Policy, query: Query) -> None:
    study = query.study
    if study is None:
        if policy.study_required:
            raise WireError(Code.POLICY_STUDY, "It names no study, and the policy requires one.")
        return
    number = json_text(study.protocol_number)
    allowed = next((each for each in policy.studies if each.protocol_number == study.protocol_number), None)
    if policy.studies and allowed is None:
        raise WireError(Code.POLICY_STUDY, f"The policy allows no study {number}.")
    if allowed is not None and allowed.digests and study.digest.hex() not in allowed.digests:
        raise WireError(
            Code.POLICY_STUDY,
            f"The policy allows study {number} as it was stated before. What this query states of it has digest "
            f"{study.digest.hex()}.",
        )
    if allowed is not None and allowed.learners and query.learner not in allowed.learners:
        raise WireError(Code.POLICY_STUDY, f"The policy does not let {query.learner!r} ask within study {number}.")


def _check_limits(limits: PolicyLimits, query: Query) -> None:
    amounts = query.kind.amounts
    for name, value, limit in (
        ("rados", amounts.get("rados", 0), limits.rados_per_query),
        ("predicates", amounts.get("predicates", 0), limits.predicates_per_query),
        (
            "terms of the feature map",
            0 if query.feature_map is None else len(query.feature_map.terms),
            limits.map_terms_per_query,
        ),
        ("delta", Fraction(0) if query.kind.is_pure else query.delta, limits.delta_per_query),
        ("max_attempts", query.max_attempts, limits.attempts_per_query),
        ("lifetime in seconds", query.not_after_unix_s - query.created_at_unix_s, limits.lifetime_per_query_s),
    ):
        if value > limit:
            raise WireError(Code.POLICY_LIMITS, f"{name} is {float(value):g} and the limit is {float(limit):g}.")


def check_cohort(policy: Policy, roster: Roster, own_name: str, members: Iterable[str], query: Query) -> None:
    """Refuse a cohort with too few members that this party accepts. members: names, each once.

    The cohort may have other members, but they do not count. If the noise follows the cohort, they count as colluding.
    Raises WireError(POLICY_COHORT).
    """
    names = tuple(members)
    needed = policy.members_needed(query.honest_parties)
    counted = policy.count_accepted(roster, own_name, names)
    if counted < needed:
        raise WireError(Code.POLICY_COHORT, f"This party accepts {counted} of its members and requires {needed}.")
    _check_strangers(policy, query, len(names) - counted)


def check_masks(
    policy: Policy, roster: Roster, own_name: str, members: Iterable[str], query: Query, digest: bytes
) -> None:
    """Refuse a cohort whose masks some of its members can divide. members: names, each once. digest: the cohort's.

    Those who may collude are all members that this party has not accepted, and of the others all but the honest ones
    that the query counts on. Without them the rest must share masks in one part. Otherwise the sum over some of the
    honest members could be opened, with their noise alone (dpcore.paillier.mask_graph, claims 1 and 2).

    Raises WireError(MASKS_TOO_FEW).
    """
    names = tuple(members)
    accepted = policy.accepted(roster, own_name, names)
    leaving = len(accepted) - query.honest_of(len(names))
    if MaskGraph.of(names, digest, query.mask_neighbours).may_be_divided(accepted, leaving):
        raise _too_few_masks(query, len(names), len(accepted), leaving)


def check_survivors(policy: Policy, roster: Roster, own_name: str, members: Iterable[str], query: Query) -> None:
    """Refuse a sharing after which too few of the members that this party accepts could be in a total.

    members: names of all that accepted, each once. Those that it has not accepted may all collude, and of the others as
    many as its policy assumes, c (dpcore.paillier.survivors, claim 1).

    As many as a cohort needs, h + c or more, have to be left whoever vanishes; h is above the square of those that may,
    as the query's rules say. Raises WireError(POLICY_COHORT).
    """
    names = tuple(members)
    _check_vanishing(policy, query, len(names), len(names) - policy.count_accepted(roster, own_name, names))


def _check_vanishing(policy: Policy, query: Query, sharers: int, strangers: int) -> None:
    if not query.may_vanish:
        return
    least, needed = query.threshold(sharers), policy.members_needed(query.honest_parties)
    if least - strangers < needed:
        raise WireError(
            Code.POLICY_COHORT,
            f"{sharers - least} of {sharers} members may vanish, and this party has not accepted {strangers} of them. "
            f"It requires {needed} that it accepts among those that are left.",
        )


def _check_neighbours(query: Query, members: int, accepted: int) -> None:
    """Refuse a query whose largest cohort, of so many members, `check_masks` refuses in every order."""
    leaving = accepted - query.honest_of(members)
    if not is_complete(members, query.mask_neighbours) and query.mask_neighbours <= leaving:
        raise _too_few_masks(query, members, accepted, leaving)


def _too_few_masks(query: Query, members: int, accepted: int, leaving: int) -> WireError:
    return WireError(
        Code.MASKS_TOO_FEW,
        f"This party accepts {accepted} of {members} members, of which {leaving} may collude. As each shares masks "
        f"with {query.mask_neighbours} others, these could divide the rest.",
    )


def _check_strangers(policy: Policy, query: Query, strangers: int) -> None:
    """Refuse noise that follows the cohort if more of its members may collude than the noise allows for.

    The honest ones' noise suffices if all but c of N parties are honest. Of those that this party has not accepted none
    need be, nor of the others as many as its policy assumes. Noise for the smallest cohort counts h parties instead,
    whoever else takes part (`Policy.members_needed`).
    """
    if query.kind.cohorts is None:
        return
    allowed, colluders = query.kind.cohorts.colluders, strangers + policy.assumed_colluders
    if colluders > allowed:
        raise WireError(
            Code.POLICY_COHORT,
            f"Its noise follows the cohort and allows for {allowed} that collude. This party has not accepted "
            f"{strangers}, and its policy assumes {policy.assumed_colluders} more.",
        )
