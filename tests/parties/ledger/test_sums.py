"""Sums of a ledger: the larger of two, the difference of two, and what travels sealed."""

import itertools
import math
import random
import zlib
from dataclasses import replace
from fractions import Fraction

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpcore.accounting.concentrated import laplace_curve
from dpcore.accounting.filters import NO_LOSS, Loss
from parties.ledger.charges import RECORD, Charge, joint, marginal
from parties.ledger.head import Account, Sums, SumsKey
from parties.ledger.limits import Event
from wire.envelopes import SigningKey
from wire.statements import MAX_SEALED_BYTES, LedgerHead

SMOKER = marginal("smoker", "smokes")


def loss(*parts) -> Loss:
    return Loss(*map(Fraction, parts))


A = Sums(((RECORD, loss(1, 0, 8, 0)), (joint("smokes"), loss(4, 0, 8, 0))), 3)
B = Sums(((RECORD, loss(2, "0.5", 1, "0.25")), (SMOKER, loss(3, "0.5", 9, "0.25"))), 2)


def test_the_larger_of_two_has_the_maximum_of_each_part_in_each_scope():
    assert A.largest(B) == Sums(
        (
            (RECORD, loss(2, "0.5", 8, "0.25")),
            (joint("smokes"), loss(4, "0.5", 8, "0.25")),
            (SMOKER, loss(4, "0.5", 9, "0.25")),
        ),
        3,
    )
    assert B.largest(A) == A.largest(B)
    assert A.largest(A) == A


def test_what_is_missing_is_never_negative():
    assert A.less(B) == Sums(
        (
            (RECORD, loss(0, 0, 7, 0)),
            (joint("smokes"), loss(2, 0, 7, 0)),
            (SMOKER, loss(1, 0, 0, 0)),
        ),
        1,
    )
    assert B.less(A) == Sums(
        (
            (RECORD, loss(1, "0.5", 0, "0.25")),
            (joint("smokes"), loss(0, "0.5", 0, "0.25")),
            (SMOKER, loss(0, "0.5", 1, "0.25")),
        ),
        0,
    )


def test_a_scope_that_is_not_named_has_the_sum_of_the_narrowest_one_around_it():
    assert A.at(SMOKER) == A.at(joint("smokes")) == loss(4, 0, 8, 0)
    assert A.at(marginal("age", "age")) == A.at(joint("age")) == loss(1, 0, 8, 0)
    assert Sums((), 0).at(RECORD) == NO_LOSS


def test_sums_of_events_count_charges_and_reservations():
    charge, unbounded = Charge(((RECORD, loss(1, 0, 2, 0)),), "lea"), Charge((), "max")
    events = [Event(each, charged, 0.0) for each, charged in ((charge, True), (charge, False), (unbounded, False))]
    assert Sums.of(events) == Sums(((RECORD, loss(2, 0, 4, 0)),), 1)


def test_packed_numbers_are_the_doubles_from_the_sum_upwards():
    third = loss("1/3", "1/7", "2/3", "1/10")
    found = Account.unpacked(Account(Sums(((SMOKER, third), (RECORD, loss(1, 0, 2, 0))), 2**40), ()).packed())
    assert found.sums.unbounded == 2**40
    (scope, rounded), exact = found.sums.scopes
    assert (scope, scope.column, exact) == (SMOKER, "smokes", (RECORD, loss(1, 0, 2, 0)))
    for name in ("epsilon", "delta", "rho", "failure"):
        value, sent = getattr(third, name), getattr(rounded, name)
        assert Fraction(math.nextafter(float(sent), 0)) < value <= sent


@pytest.mark.parametrize("scope", [joint("é" * 127), marginal("a" * 255, "b" * 255)])
def test_the_longest_names_travel(scope):
    # A mu does not travel: what a ledger lacks has none.
    account = Account(Sums(((scope, replace(NO_LOSS, shift=None)),), 0), ())
    assert Account.unpacked(account.packed()) == account


@pytest.mark.parametrize(
    "sums",
    [Sums(((joint("é" * 128), NO_LOSS),), 0), Sums(((RECORD, loss(10**400, 0, 0, 0)),), 0)],
    ids=["name", "number"],
)
def test_what_does_not_fit_is_an_overflow_and_seals_to_nothing(sums):
    with pytest.raises(OverflowError):
        Account(sums, ()).packed()
    assert SumsKey("ada", SigningKey.generate("clinics")).seal(Account(sums, ()), 1, bytes(32)) == b""


def test_sums_are_sealed_up_to_the_last_byte_that_fits():
    key = SumsKey("ada", SigningKey.generate("clinics"))
    # Random bytes do not compress: four more for each step of the trail, and a few for the name.
    drawn = random.Random(0).randbytes(480)
    trail = tuple(drawn[4 * step : 4 * step + 4] for step in range(120))
    sizes = set()
    for length, steps in itertools.product(range(1, 8), range(90, 120)):
        sums = Sums(((marginal("feature"[:length]), loss(1, 0, 0, 0)),), 0)
        sizes.add(len(key.seal(Account(sums, trail[:steps]), 1, bytes(32))))
    assert max(sizes) == MAX_SEALED_BYTES
    assert 0 in sizes


def test_a_few_bytes_do_not_fill_the_memory():
    scopes = tuple((marginal(f"{number:0255}"), NO_LOSS) for number in range(4000))
    packed = Account(Sums(scopes, 0), ()).packed()
    with pytest.raises(ValueError, match="not the sums"):
        Account.unpacked(packed)


def test_every_byte_cut_off_is_noticed():
    content = zlib.decompress(Account(Sums(((SMOKER, loss(1, 0, 2, 0)),), 1), ()).packed())
    # The first 9 bytes are an account without a scope.
    for end in (*range(9), *range(10, len(content))):
        with pytest.raises(ValueError, match="not the sums"):
            Account.unpacked(zlib.compress(content[:end]))


def test_an_account_is_bound_to_its_party_its_head_and_its_place():
    signing = SigningKey.generate("clinics")
    key, account = SumsKey("ada", signing), Account(A, ())
    digest = b"d" * 32
    sealed = key.seal(account, 258, digest)
    assert 0 < len(sealed) <= MAX_SEALED_BYTES
    assert sealed != key.seal(account, 258, digest)
    assert key.open(LedgerHead(258, digest, sealed)) == account
    assert SumsKey("ada", signing).open(LedgerHead(258, digest, sealed)) == account
    for other, head in (
        (SumsKey("bo", signing), LedgerHead(258, digest, sealed)),
        (SumsKey("ada", SigningKey.generate("clinics")), LedgerHead(258, digest, sealed)),
        (key, LedgerHead(513, digest, sealed)),
        (key, LedgerHead(258, b"e" * 32, sealed)),
        (key, LedgerHead(258, digest, sealed[:-1] + bytes([sealed[-1] ^ 1]))),
        (key, LedgerHead(258, digest, b"")),
    ):
        assert other.open(head) is None
    assert repr(key) == "SumsKey('ada')"


def test_the_label_of_sealed_sums_never_changes():
    """A head of an earlier version is opened: the key's derivation and the bound bytes are fixed."""
    signing = SigningKey.generate("clinics")
    secret = signing.agreement_key().private_bytes_raw()
    cipher = AESGCM(HKDF(SHA256(), 32, None, b"rado.v1/ledger-sums\0").derive(secret))
    digest, nonce = b"d" * 32, b"n" * 12
    bound = b"rado.v1/ledger-sums\0" + b"\x03ada" + (7).to_bytes(8, "big") + digest
    sealed = nonce + cipher.encrypt(nonce, Account(A, ()).packed(), bound)
    assert SumsKey("ada", signing).open(LedgerHead(7, digest, sealed)) == Account(A, ())
    with pytest.raises(InvalidTag):
        cipher.decrypt(nonce, sealed[12:], bound[:-1])


def with_curve(values=40):
    curve, rho = laplace_curve(Fraction(values), values, 1)
    return Loss(Fraction(1), Fraction(0), rho, Fraction(0), curve, rho) + loss("1/2", "1e-6", "1/300", 0)


def test_curves_travel_rounded_up_and_an_account_of_an_earlier_version_is_one():
    held = with_curve()
    ((_, read),) = Account.unpacked(Account(Sums(((RECORD, held),), 0), ()).packed()).sums.scopes
    assert not read.is_earlier
    assert all(0 <= more - exact < exact / 10**6 for more, exact in zip(read.curve, held.curve, strict=True))
    for s in (Fraction(1), Fraction(3), Fraction(100)):
        assert held.divergence(s) <= read.divergence(s) <= held.divergence(s) * Fraction(10**6 + 1, 10**6)
    # Without curves, where they do not fit: the rhos count alone.
    ((_, plain),) = Account.unpacked(Account(Sums(((RECORD, held),), 0), ()).packed(curves=False)).sums.scopes
    assert (plain.curve, plain.is_earlier) == ((), False)
    assert plain.divergence(Fraction(100)) > held.divergence(Fraction(100))
    earlier = replace(held, is_earlier=True)
    ((_, read),) = Account.unpacked(Account(Sums(((RECORD, earlier),), 0), ()).packed()).sums.scopes
    assert (read.is_earlier, read.curve) == (True, ())
    with pytest.raises(ValueError, match="not know"):
        Account.unpacked(zlib.compress(bytes(9) + bytes([0x30, 0, 0]) + bytes(32)))


def test_what_is_missing_and_what_is_largest_keep_the_curve():
    more, less = with_curve(), Loss.of_epsilon(Fraction(1, 4), Fraction(0))
    missing = more.less(less)
    for s in (Fraction(1), Fraction(8)):
        assert (less + missing).divergence(s) >= more.divergence(s)
        assert more.largest(less).divergence(s) >= max(more.divergence(s), less.divergence(s))
    assert more.less(more) == replace(NO_LOSS, curve=more.less(more).curve, shift=more.less(more).shift)
    assert set(more.less(more).curve) == {Fraction(0)}


def test_seals_leave_out_curves_where_they_do_not_fit():
    key = SumsKey("ada", SigningKey.generate("clinics"))
    scopes = tuple((joint(f"column {number}"), with_curve(40 + number)) for number in range(8))
    account = Account(Sums(scopes, 0), ())
    assert len(account.packed()) > MAX_SEALED_BYTES > len(account.packed(curves=False))
    sealed = key.seal(account, 3, b"d" * 32)
    assert 0 < len(sealed) <= MAX_SEALED_BYTES
