"""The named policies do what their tables say: each level is compared with what a party decides on real queries."""

import json
import re
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.accounting.filters import Loss
from dpcore.accounting.noise_shares import IntegerNoise, smallest_share
from dpcore.accounting.protection import loss_of
from parties.approval.gate import reasons
from parties.ledger.charges import RECORD, Charge
from parties.ledger.limits import BudgetExceededError, Event, check_admits
from parties.named_policies import ASKS, AT_ONCE, FUNCTIONS, NAMED, REFUSED, level_of, levels, named
from parties.policy import Policy, check_query
from tests.federation.processes import rado
from tests.wire.every_query import every_query
from wire.errors import Code, WireError
from wire.query import OpenedQuery

PAGES = Path(__file__).resolve().parents[2] / "docs/policies"
SAMPLE = PAGES.parents[1] / "deploy/samples/policy.toml"
NAMES = [each.name for each in NAMED]


def of_party(world, name: str) -> Policy:
    """The named policy with the members of a federation."""
    members = json.loads(world.policy().model_dump_json(include={"accepted_members", "learners"}))
    return Policy.model_validate({**named(name).settings, **members})


def charge(epsilon: str) -> Charge:
    return Charge(((RECORD, Loss.of_epsilon(Fraction(epsilon), Fraction(0))),), "lea")


def real_level(policy: Policy, world, query, epsilon: str = "0.001") -> str:
    """What a party decides on a query."""
    opened = OpenedQuery(world.ask(query), query, world.key.public_key)
    try:
        check_query(policy, opened, world.roster, "ada")
    except WireError as error:
        if error.code in (Code.POLICY_DESIGN, Code.POLICY_UNPROTECTED, Code.POLICY_PURPOSE):
            return REFUSED
        raise
    return ASKS if reasons(policy.approval, query, charge(epsilon)) else AT_ONCE


def test_four_are_named():
    assert NAMES == ["public-statistics", "research-within-epsilon-1", "ask-me-always", "closed"]


@pytest.mark.more
def test_each_level_is_what_a_party_decides_on_real_queries(world):
    designs = set()
    for name, asked in every_query(world).items():
        if "short opening" in name:
            continue  # its key is another one
        query = asked if asked.purpose else type(asked)(**{**vars(asked), "purpose": "Study 17"})
        design = query.kind.name
        designs.add(design)
        for each in NAMED:
            policy = of_party(world, each.name)
            wanted = level_of(policy, design)
            if design == "fixed-support" and query.kind.scope == "none":
                wanted = REFUSED  # without noise
            assert real_level(policy, world, query) == wanted, (each.name, name)
    assert designs == {design for function in FUNCTIONS for design in function.designs}


def test_a_query_without_a_purpose_is_refused_where_the_page_says_so(world):
    query = every_query(world)["moments"]
    for each in NAMED[:3]:
        assert each.policy.purpose_required
        assert real_level(of_party(world, each.name), world, query) == REFUSED


def test_public_statistics_ask_once_it_adds_up(world):
    policy = of_party(world, "public-statistics")
    query = next(q for q in every_query(world).values() if q.kind.name == "statistic")
    query = type(query)(**{**vars(query), "purpose": "yearly figures", "max_attempts": 1})
    assert real_level(policy, world, query, "0.4") == AT_ONCE
    assert real_level(policy, world, query, "0.5") == ASKS
    assert reasons(policy.approval, query, charge("0.1"), before=Fraction(2, 5))


def test_what_they_spend_at_most_is_what_their_pages_say():
    for each in NAMED:
        limit = each.policy.limits.of_ledger.lifetime
        text = (PAGES / f"{each.name}.md").read_text()
        said = re.search(r"\*\*Budget\.\*\* (Nothing|Epsilon ([0-9.]+))", text)
        assert float(limit.epsilon) == (0 if said[1] == "Nothing" else float(said[2]))


@pytest.mark.parametrize("name", NAMES)
def test_its_page_is_read_in_two_minutes(name):
    """About 200 words a minute; the file at the end is for who writes it."""
    text = (PAGES / f"{name}.md").read_text().partition("## Take it")[0]
    assert len(text.split()) < 400
    for function, level in levels(named(name).policy):
        assert function.words in text
        assert level in text


def test_the_file_of_a_page_is_a_policy():
    for each in NAMED:
        text = (PAGES / f"{each.name}.md").read_text()
        toml = re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
        assert Policy.model_validate(tomllib.loads(toml)) == each.policy


BEFORE = """
designs = ["plain"]
allow_unprotected = true
smallest_cohort = 4
accepted_members = ["{fingerprint}"]
[limits]
epsilon = "20"
delta = "1e-4"
unbounded_queries = 5
[limits.columns.age]
epsilon = "3"
delta = "1e-6"
[approval]
everything = false
users = ["alee", "bruiz"]
approvers = 2
[history]
days = 100
[[learners]]
name = "lea"
signing_key = "{fingerprint}"
requesters = ["Dr Bell"]
"""


@pytest.fixture
def config(offline):
    member = offline.member("ada")
    (member.config.parent / "policy.toml").write_text(BEFORE.format(fingerprint=":".join(["aaaa"] * 16)))
    return member.config


@pytest.mark.parametrize("name", NAMES[1:3])
def test_it_replaces_what_it_is_about_and_keeps_the_rest(config, name):
    file = config.parent / "policy.toml"
    found = rado("party", "policy", name, "--config", str(config))["data"]
    assert found["written"] is None
    assert file.read_text() == BEFORE.format(fingerprint=":".join(["aaaa"] * 16))
    found = rado("party", "policy", name, "--config", str(config), "--write")["data"]
    policy = Policy.load(file)
    wanted = named(name).policy
    assert (policy.designs, policy.limits) == (wanted.designs, wanted.limits)
    assert (policy.smallest_cohort, policy.learners[0].requesters, policy.history.days) == (4, ("Dr Bell",), 100)
    assert (policy.approval.users, policy.approval.approvers) == (("alee", "bruiz"), 2)
    assert policy.approval.everything == wanted.approval.everything
    # Nothing goes in silence.
    assert 'limits.columns.age.epsilon = "3"' in found["gone"]
    assert "allow_unprotected = true" in found["gone"]
    assert Policy.load(file.with_name("policy.toml.before")).limits.unbounded_queries == 5


def test_it_says_what_changes_and_nothing_else_and_overwrites_no_former_policy(config):
    file = config.with_name("policy.toml")
    file.write_text(SAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    arguments = ("--config", str(config), "--write")
    changes = rado("party", "policy", "public-statistics", *arguments)["data"]["changes"]
    # The file of a new party also states what holds anyway: one query's limits, for example.
    assert changes == [
        'changed: designs = ["statistic"], before []',
        'changed: limits.epsilon = "3", before "10"',
        "new: purpose_required = true",
        'new: limits.per_day.epsilon = "1"',
        'new: limits.per_day.delta = "1e-5"',
        'new: approval.epsilon_at_least = "0.5"',
    ]
    first = file.read_text(encoding="utf-8")
    changes = rado("party", "policy", "ask-me-always", *arguments)["data"]["changes"]
    assert 'gone: limits.per_day.epsilon = "1"' in changes
    assert 'gone: approval.epsilon_at_least = "0.5"' in changes
    assert file.with_name("policy.toml.before-2").read_text(encoding="utf-8") == first


def test_research_has_room_for_a_training_of_epsilon_1_and_its_evaluation():
    """As its page says: by Gaussian noise at delta 1e-6, then two batches by Laplace noise, the larger one of 7/8."""
    policy = named("research-within-epsilon-1")
    assert "one training of epsilon 1 at delta 1e-6 and its evaluation at 0.1" in policy.summary
    limits = policy.policy.limits.of_ledger
    delta = Fraction(1, 10**6)
    noise = IntegerNoise(smallest_share(1 << 40, 2, 100, Fraction(1), delta), 2, 100)
    losses = [loss_of(noise.distribution(1 << 40), delta)]
    losses += [Loss.of_epsilon(Fraction(1, 10) * part, Fraction(0)) for part in (Fraction(1, 8), Fraction(7, 8))]
    held: list[Event] = []
    for loss in losses:
        charge = Charge(((RECORD, loss),), "lab")
        check_admits(limits, held, charge, now_unix_s=0.0)
        held.append(Event(charge, True, 0.0))
    with pytest.raises(BudgetExceededError):
        check_admits(limits, held, Charge(((RECORD, losses[-1]),), "lab"), now_unix_s=0.0)


def most(name: str, epsilon: str) -> int:
    """How many answers of this epsilon with Laplace noise the policy admits, over its lifetime."""
    limits, held = named(name).policy.limits.of_ledger, []
    more = charge(epsilon)
    for n in range(100):
        try:
            check_admits(limits, held, more, now_unix_s=86_400.0 * 2 * n)
        except BudgetExceededError:
            return n
        held.append(Event(more, True, 86_400.0 * 2 * n))
    return 100


def test_how_many_statistics_fit_is_what_is_said():
    assert "four tables or curves of epsilon 0.1" in named("research-within-epsilon-1").summary
    assert most("research-within-epsilon-1", "0.1") == 4
    assert most("research-within-epsilon-1", "0.21") == 1
    assert most("research-within-epsilon-1", "0.22") == 0
    page = (PAGES / "research-within-epsilon-1.md").read_text()
    assert "fits up to epsilon 0.21 with Laplace noise" in page
    assert "up to 1 with Gaussian noise" in page
    # One with Laplace noise costs what it says where only such is asked.
    assert most("public-statistics", "1") == 3
    assert most("public-statistics", "1.01") == 0
    assert "fits up to epsilon 1 with Laplace noise" in (PAGES / "public-statistics.md").read_text()


def test_an_unknown_name_is_a_sentence(config):
    assert rado("party", "policy", "open", "--config", str(config), code=4)
    assert rado("party", "policy", "closed", "--write", code=4)
    assert rado("party", "policy")["data"]["policies"] == NAMES
