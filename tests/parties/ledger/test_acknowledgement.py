"""Acknowledging a ledger that was set back: what was spent is charged again, whatever the copies were."""

import shutil
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.filters import BASIC_SHARE, FAILURE_SHARE, Loss
from parties.database import LedgerSetBackError
from parties.ledger.acknowledgement import UNWITNESSED_STEP, Claim, charge_plan, plan
from parties.ledger.charges import RECORD, Charge, Scope, joint, marginal
from parties.ledger.head import Account, LocalHead, Sums, SumsKey, head_path
from parties.ledger.ledger import Ledger
from parties.ledger.limits import BudgetExceededError, UnboundedExceededError
from tests.federation.party import OWNER, SMOKER, limits
from wire.envelopes import SigningKey
from wire.statements import MAX_SEALED_BYTES, LedgerHead

LIMIT = limits("1000", "1e-3", unbounded=10**6)
KEY = SumsKey("ada", SigningKey.generate("clinics"))
NEW = marginal("new")
SCOPES = (RECORD, joint("smoker"), SMOKER, marginal("old", "years"), NEW)


def bounded(*bounds: tuple[Scope, Fraction | int | str], epoch: bytes | None = None) -> Charge:
    return Charge(tuple((s, Loss.of_epsilon(Fraction(e), Fraction(1, 10**7))) for s, e in bounds), "lea", epoch)


KINDS = (
    bounded((RECORD, Fraction(1, 3))),
    bounded((SMOKER, 1)),
    bounded((joint("smoker"), 2), (SMOKER, 1)),
    bounded((marginal("old", "years"), "0.1")),
    bounded((RECORD, 1), epoch=b"table"),
    Charge((), "max"),
)


def opened(path, **options) -> Ledger:
    return Ledger.open(path, OWNER, LIMIT, **options)


def spend(ledger: Ledger, number: int, charge: Charge, *, charged: bool = True) -> None:
    query_id = number.to_bytes(32, "big")
    ledger.reserve(query_id, 1, charge, lapses_at_unix_s=1e12, now_unix_s=0.0)
    if charged:
        ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)


def claim(ledger: Ledger, source: str = "bo") -> Claim:
    head = ledger.signed_head(KEY)
    return Claim(source, head.entries, KEY.open(head))


def copied(path, to):
    to.mkdir()
    for suffix in ("", ".head"):
        shutil.copy(f"{path}{suffix}", to / f"ledger.sqlite{suffix}")
    return to / "ledger.sqlite"


def charged(ledger: Ledger) -> dict[Scope, Loss]:
    return {scope: ledger.spent(scope) for scope in SCOPES}


def parts(loss: Loss) -> tuple[Fraction, ...]:
    return loss.epsilon, loss.delta, loss.rho, loss.failure


runs = st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=4)


@given(common=runs, here=runs, there=runs)
def test_no_charge_of_either_copy_is_lost(tmp_path_factory, common, here, there):
    """A ledger and its copy that both went on: after the acknowledgement nothing of either is missing."""
    root = tmp_path_factory.mktemp("forks")
    ledger = opened(root / "ledger.sqlite")
    everything = opened(root / "everything.sqlite")
    for number, (kind, is_charged) in enumerate(common):
        spend(ledger, number, kind, charged=is_charged)
        spend(everything, number, kind)
    copy = opened(copied(root / "ledger.sqlite", root / "copy"))
    for start, run, side in ((100, here, ledger), (200, there, copy)):
        for number, (kind, is_charged) in enumerate(run, start):
            spend(side, number, kind, charged=is_charged)
            spend(everything, number, kind)
    if not copy.head().entries:
        return
    shown = claim(copy)
    ledger.database.close()
    ledger = opened(root / "ledger.sqlite", anchored=False)
    decided = plan(ledger, [shown], witnessed=True)
    assert not decided.whole
    charge_plan(ledger, decided, 9.0)
    needed, now = charged(everything), charged(ledger)
    for scope in SCOPES:
        assert all(a <= b for a, b in zip(parts(needed[scope]), parts(now[scope]), strict=True)), scope
    assert ledger.unbounded() >= everything.unbounded()
    assert (ledger.verify(), ledger.state().reserved) == ([], 0)
    assert ledger.head().entries > max(shown.entries, len(common) + len(here))


def test_an_older_copy_is_charged_exactly_what_it_lacks(tmp_path):
    ledger = opened(tmp_path / "ledger.sqlite")
    spend(ledger, 1, KINDS[0])
    path = copied(tmp_path / "ledger.sqlite", tmp_path / "copy")
    for number, kind in enumerate(KINDS, 2):
        spend(ledger, number, kind)
    copy = opened(path, anchored=False)
    decided = plan(copy, [claim(ledger)], witnessed=True)
    assert not decided.whole
    charge_plan(copy, decided, 9.0)
    for scope, loss in charged(ledger).items():
        for missing, found in zip(parts(loss), parts(copy.spent(scope)), strict=True):
            # In whole doubles, rounded up.
            assert missing <= found <= missing * (1 + Fraction(1, 10**12))
    # The sums, and the events without a bound for whole records.
    assert copy.unbounded() == ledger.unbounded() == 4
    assert [charge.learner for charge in decided.charges] == ["", ""]
    assert decided.charges[1].events == 4
    # A second time nothing is missing.
    again = plan(copy, [claim(ledger)], witnessed=True)
    before = charged(copy)
    copy.database.close()
    copy = opened(path, anchored=False)
    charge_plan(copy, again, 10.0)
    assert charged(copy)[RECORD].epsilon < 2 * before[RECORD].epsilon


def test_afterwards_the_party_starts_and_older_heads_do_not_count(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ledger = opened(path)
    spend(ledger, 1, KINDS[0])
    older = copied(path, tmp_path / "copy")
    heads = []
    for number in range(2, 6):
        spend(ledger, number, KINDS[1])
        heads.append(ledger.signed_head(KEY))
    newest = claim(ledger)
    ledger.database.close()
    shutil.copy(older, path)
    with pytest.raises(LedgerSetBackError):
        opened(path)
    ledger = opened(path, anchored=False)
    assert all(ledger.contradicts(head) for head in heads)
    decided = plan(ledger, [newest], witnessed=True)
    assert decided.number == newest.entries + 1
    charge_plan(ledger, decided, 9.0)
    ledger.database.close()
    ledger = opened(path)
    assert not any(ledger.contradicts(head) for head in heads)
    # The last entry of the acknowledgement counts: another one with its number is another ledger's.
    assert ledger.contradicts(LedgerHead(ledger.head().entries, b"x" * 32, b""))
    # Later heads count as before.
    spend(ledger, 9, KINDS[0])
    assert ledger.contradicts(LedgerHead(ledger.head().entries + 1, b"x" * 32, b""))
    assert ledger.contradicts(LedgerHead(ledger.head().entries, b"x" * 32, b""))


def test_a_kill_between_the_charge_and_its_head_only_repeats_the_acknowledgement(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ledger = opened(path)
    spend(ledger, 1, KINDS[0])
    older = copied(path, tmp_path / "copy")
    spend(ledger, 2, KINDS[0])
    newest = claim(ledger)
    ledger.database.close()
    head = head_path(path).read_bytes()
    shutil.copy(older, path)
    ledger = opened(path, anchored=False)
    charge_plan(ledger, plan(ledger, [newest], witnessed=True), 9.0)
    ledger.database.close()
    head_path(path).write_bytes(head)
    with pytest.raises(LedgerSetBackError):
        opened(path)
    ledger = opened(path, anchored=False)
    charge_plan(ledger, plan(ledger, [newest], witnessed=True), 9.0)
    assert ledger.spent(RECORD).epsilon >= Fraction(2, 3)


def test_nothing_counts_as_held_if_no_entry_is_provably_common(tmp_path):
    """The ledger's only entry is a reservation, number 1."""
    ledger = opened(tmp_path / "ledger.sqlite", anchored=False)
    spend(ledger, 1, KINDS[0], charged=False)
    known = claim(ledger)
    unknown = replace(known, account=replace(known.account, trail=()))
    (held,), (missing,) = (plan(ledger, [each], witnessed=True).charges for each in (known, unknown))
    # Sums travel rounded up, to doubles.
    assert held.bounds[0][1].epsilon < Fraction(1, 2**50)
    assert missing.bounds[0][1].epsilon >= KINDS[0].bounds[0][1].epsilon


TIGHT = limits(
    "10",
    "1e-5",
    unbounded=7,
    record=limits("3", "1e-6").lifetime,
    features={"old": limits("20", "1e-4").lifetime},
    columns={"years": limits("1", "1e-6").lifetime},
)


@pytest.mark.parametrize("witnessed", [False, True])
def test_without_sums_the_whole_remaining_limit_of_every_scope_is_charged(tmp_path, witnessed):
    ledger = Ledger.open(tmp_path / "ledger.sqlite", OWNER, TIGHT, anchored=False)
    spend(ledger, 1, KINDS[1])
    spend(ledger, 2, Charge(), charged=False)
    spend(ledger, 3, KINDS[3])
    entries = ledger.head().entries
    claims = [Claim("bo", 50, None), Claim("cy", 40, Account(Sums((), 0), ()))] if witnessed else []
    decided = plan(ledger, claims, witnessed=witnessed)
    assert decided.whole
    charge_plan(ledger, decided, 9.0)
    # A reservation became one more entry.
    assert decided.number == (51 if witnessed else entries + 1 + UNWITNESSED_STEP)
    for number, scope in enumerate((*SCOPES, joint("years"), joint("unheard"), marginal("of", "unheard")), 10):
        with pytest.raises(BudgetExceededError) as caught:
            spend(ledger, number, bounded(*dict.fromkeys([(scope, "1e-9"), (RECORD, "1e-9")])))
        assert caught.value.remaining == 0
    with pytest.raises(UnboundedExceededError):
        spend(ledger, 99, Charge())
    # No scope shows a rest, also if it has no limit of its own.
    assert ledger.spent(joint("unheard")).epsilon == TIGHT.lifetime.epsilon
    assert (ledger.state().remaining_unbounded, ledger.verify()) == (0, [])


def test_an_empty_ledger_without_a_witness_is_charged_all_parts_of_its_limit(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.sqlite", OWNER, TIGHT, anchored=False)
    decided = plan(ledger, [], witnessed=False)
    assert (decided.whole, decided.number) == (True, UNWITNESSED_STEP)
    limit = TIGHT.lifetime
    assert dict(decided.charges[0].bounds)[RECORD] == Loss(
        limit.epsilon, BASIC_SHARE * limit.delta, limit.largest_rho, FAILURE_SHARE * limit.delta
    )


@pytest.mark.parametrize("trail", [0, 1], ids=["none", "the head alone"])
def test_a_trail_may_be_shorter_than_the_ledger(tmp_path, trail):
    ledger = opened(tmp_path / "ledger.sqlite", anchored=False)
    for number in range(5):
        spend(ledger, number, KINDS[0])
    shown = claim(ledger)
    assert shown.account is not None
    cut = replace(shown, account=replace(shown.account, trail=shown.account.trail[:trail]))
    epsilon = sum(charge.bound(RECORD).epsilon for charge in plan(ledger, [cut], witnessed=True).charges)
    # With the head in the trail all is common, up to rounding, and without it nothing is.
    assert (epsilon < Fraction(1, 10**6)) == bool(trail)


def test_attempts_that_were_not_charged_never_continue(ada):
    envelope = ada.world.ask()
    ada.lifecycle.advance(ada.work(envelope))
    before = ada.ledger.spent(SMOKER)
    reserved = ada.ledger.reserved(SMOKER)
    ada.ledger.database.close()
    ledger = Ledger.open(ada.directory / "ledger.sqlite", OWNER, ada.limits, anchored=False)
    charge_plan(ledger, plan(ledger, [], witnessed=False), 9.0)
    ledger.database.close()
    ada.restart()
    held = ada.attempts.find(envelope.payload_hash, 1)
    assert held is not None
    assert (held.state.value, held.mask_key) == ("burnt", None)
    assert ada.ledger.spent(SMOKER).epsilon >= (before + reserved).epsilon


# Sums.


def test_sums_that_do_not_fit_are_left_out():
    few = Sums.of([])
    many = Sums(tuple((marginal(f"feature-{n * 7919 % 1000}"), KINDS[1].bounds[0][1]) for n in range(400)), 3)
    assert 0 < len(KEY.seal(Account(few, ()), 1, b"d" * 32)) <= MAX_SEALED_BYTES
    assert KEY.seal(Account(many, ()), 1, b"d" * 32) == b""
    huge = Loss(Fraction(10**400), Fraction(0), Fraction(0), Fraction(0))
    assert KEY.seal(Account(Sums(((RECORD, huge),), 0), ()), 1, b"d" * 32) == b""


@given(
    st.lists(st.fractions(0, 10**6), min_size=4, max_size=4),
    st.integers(0, 2**40),
    st.lists(st.binary(min_size=4, max_size=4), max_size=40),
)
def test_packed_sums_are_read_back_rounded_up(values, unbounded, trail):
    scope = marginal("größe", "älter")
    account = Account(Sums(((RECORD, Loss(*values)), (scope, Loss(*values))), unbounded), tuple(trail))
    found = Account.unpacked(account.packed())
    assert (found.sums.unbounded, found.trail) == (unbounded, tuple(trail))
    assert [each for each, _ in found.sums.scopes] == [RECORD, scope]
    for exact, rounded in zip(values, parts(found.sums.at(scope)), strict=True):
        assert exact <= rounded <= exact * (1 + Fraction(1, 2**52)) or (exact == 0 == rounded)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_sums_are_refused(data):
    with pytest.raises(ValueError, match="not the sums"):
        Account.unpacked(data)


def test_the_head_beside_the_ledger_has_its_sums(tmp_path):
    ledger = opened(tmp_path / "ledger.sqlite")
    spend(ledger, 1, KINDS[2])
    spend(ledger, 2, KINDS[5], charged=False)
    local = LocalHead.read(head_path(tmp_path / "ledger.sqlite"))
    assert local is not None
    assert local.account is not None
    assert (local.account.sums.at(SMOKER).epsilon, local.account.sums.unbounded) == (1, 2)
