"""A party's approvals of several queries in its console: what one may be given for, the list, and revocation."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from dpcore.errors import ConfigurationError
from parties.approval.decisions import DecisionError, Person
from parties.approval.giving import Do, Order, approvals, delegations, do, proposed, shown_approvals
from parties.approval.standing import Covers
from parties.config import PartyConfig
from parties.policy import Policy
from radobase.printing import moment
from radofed.console.pages import Answer, Goto, Shown, Visit
from wire.envelopes import Envelope
from wire.query import Query

_ACTIONS = {"revoke": Do.REVOKE, "approve": Do.CONFIRM, "refuse": Do.REJECT}


@dataclass(frozen=True)
class Offer:
    """What a query that waits may be approved with."""

    covers: str
    title: str
    lines: tuple[str, ...]
    """What would be let through; of a study without its cost, which a person gives."""


def offers(envelope: Envelope, now_unix_s: float) -> list[Offer]:
    """The training and the study that a query names, if it names them."""
    query, found = Query.from_bytes(envelope.payload), []
    if query.training is not None and now_unix_s < query.training.ends_unix_s:
        terms = proposed(Order(Do.APPROVE, Covers.TRAINING), envelope, now_unix_s)
        found.append(Offer(Covers.TRAINING.value, "The whole training", tuple(terms.lines())))
    if query.study is not None:
        line = f"all queries of the study {query.study.short} to the epsilon below, until its last day or the end below"
        found.append(Offer(Covers.STUDY.value, "All queries of the study", (line,)))
    return found


def order_of(form: Mapping[str, str]) -> Order | None:
    """What a form approves several queries with; None if it approves one. Raises ConfigurationError."""
    covers = form.get("covers", "query")
    if covers == "query":
        return None
    if covers not in {each.value for each in Covers}:
        raise ConfigurationError("choose what to approve: this query, its training, or its study")
    until, epsilon = form.get("until", "").strip(), form.get("epsilon", "").strip()
    return Order(Do.APPROVE, Covers(covers), epsilon or None, moment(until, 0.0) if until else None)


def page(config: PartyConfig, _: Visit) -> Answer:
    """As `rado party approvals --all`."""
    return _shown(config, "")


def act(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party revoke`, and `approve` or `refuse` of a proposal. form: do, name, reason, and the policy's digest.

    If it does not count, the page says why.
    """
    form = visit.form
    kind = _ACTIONS.get(form.get("do", ""))
    if kind is None:
        return _shown(config, "choose what to do")
    try:
        person = Person.present(form.get("name", ""))
        reason, seen = form.get("reason", ""), form.get("policy", "")
        do(config, Order(kind), visit.path["approval"], person, reason, policy_seen=seen)
    except (DecisionError, ConfigurationError) as error:
        return _shown(config, str(error))
    return Goto("approvals")


def _shown(config: PartyConfig, problem: str) -> Answer:
    now, policy = time.time(), Policy.load(config.policy)
    same = {each["approval_id"]: each["same_study"] for each in shown_approvals(config, now)}
    values = {
        "found": [(each, each.state(now), each.is_in_force(now)) for each in reversed(approvals(config))],
        "same_study": same,
        "delegates": [each for each in delegations(config) if each.holds(now)],
        "policy_digest": policy.digest,
        "asks_names": policy.approval.names,
        "problem": problem,
    }
    return Shown("party/approvals.html", "Approvals", values)
