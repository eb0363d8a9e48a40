"""What parties really send is what the model of who learns what says that they send, number for number.

Every upload is decrypted by itself and compared with the model's form at the numbers that the keys derive: for pads and
coefficient as the learner derives them, for masks as the greater of the two members does.
"""

from collections.abc import Mapping

import numpy as np
import pytest

from dpcore.paillier.masks import PRIME, CohortAttempt, coefficient, pad
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import plain_design
from dpcore.randomness.sources import KeyedRandom, SystemRandom
from dpcore.research.who_learns_what.protocol import (
    CHECK,
    TAG,
    TODAY,
    Form,
    Kind,
    Protocol,
    Shown,
    Unknown,
    Upload,
    alpha,
    pair_of,
    polynomial,
    upload,
)
from dpcore.research.who_learns_what.protocol import pad as pad_of
from tests.federation import material
from tests.federation.cohort import ROWS, CohortInMemory
from tests.federation.material import SMALL as SCHEMA
from wire.envelopes import sha256

KIND = RadosQuery(3, plain_design(SCHEMA))
EVERYONE = frozenset(ROWS)
OTHER_DIGEST = sha256(b"another cohort")


@pytest.fixture(scope="module")
def cohort() -> CohortInMemory:
    secret = material.secret_key()
    return CohortInMemory(KIND, secret, Obfuscator(secret.public_key, SystemRandom()), max_attempts=2)


class Derived:
    """The numbers that stand for unknowns, from the members' and the learner's keys."""

    def __init__(self, cohort: CohortInMemory, digests: Mapping[str, bytes]) -> None:
        """digests: of each cohort that was shown, by the model's name for it."""
        self.cohort, self.digests = cohort, digests
        self.bits = cohort.opened.query.encoding.value_bits
        self.publics = {name: key.public_key().public_bytes_raw() for name, key in cohort.mask_keys.items()}

    def attempt(self, shown: str) -> CohortAttempt:
        number = int(shown.partition(":")[0])
        return CohortAttempt(self.cohort.opened.query_id, number, self.digests[shown])

    def __call__(self, unknown: Unknown) -> int:
        match unknown.kind:
            case Kind.DATA:
                return int(self.cohort.vectors[unknown.of][int(unknown.place) - 1])
            case Kind.NOISE:
                # The vectors of this cohort have their draws in them.
                return 0
            case Kind.ROWS:
                return ROWS[unknown.of]
            case Kind.OFFSET:
                return 1 << (self.bits - 1)
            case Kind.ALPHA:
                seed = self.cohort.opening.seed
                return coefficient(seed, query_id=self.cohort.opened.query_id, attempt=int(unknown.shown))
            case Kind.PAD:
                attempt = self.attempt(unknown.shown)
                return pad(self.cohort.opening.key, self.publics[unknown.of], unknown.of, attempt)
            case _:
                return self.mask(unknown)

    def mask(self, unknown: Unknown) -> int:
        """As the greater of the two names derives it."""
        lesser, greater = pair_of(unknown)
        own, peer = self.cohort.mask_keys[greater], self.publics[lesser]
        attempt = self.attempt(unknown.shown)
        if unknown.place == TAG:
            wide = attempt.derive(own, peer, b"rado.v1/tag-mask\0", lesser, greater, peer=lesser, length=48)
            return int.from_bytes(wide, "big")
        key = attempt.derive(own, peer, b"rado.v1/mask\0", lesser, greater, peer=lesser, length=32)
        slots = self.cohort.opened.query.encoding.slots_per_ciphertext(self.cohort.opened.public_key.bits)
        stream = np.empty((self.cohort.opened.value_ciphertexts, slots), dtype="<u8")
        KeyedRandom(key).fill(stream)
        return int(stream[0, 0 if unknown.place == CHECK else int(unknown.place)])


def number(form: Form, derived: Derived, modulus: int) -> int:
    """The form's residue; an unknown without a number is an error."""
    return form.at(derived, modulus).terms.get((), 0)


def plaintexts(cohort: CohortInMemory, chunks: list[bytes]) -> tuple[list[int], int]:
    """The slots of the first ciphertext, check slot first, and the tag."""
    opened, encoding = cohort.opened, cohort.opened.query.encoding
    first, tag = cohort.secret.decrypt_many(opened.public_key.from_wire(b"".join(chunks)))
    width = encoding.slot_bits
    return [int(first >> (width * slot)) % (1 << width) for slot in range(opened.query.length + 1)], int(tag)


def differences(cohort: CohortInMemory, shown: Shown, upload_digest: bytes, model_digest: bytes) -> int:
    """How many plaintexts of all uploads are not the model's forms.

    upload_digest: of the cohort that the parties mask for. model_digest: with which the model's unknowns are derived.
    """
    derived = Derived(cohort, {shown.digest: model_digest})
    count = 0
    for name in ROWS:
        slots, tag = plaintexts(cohort, cohort.masked(name, upload_digest))
        form = upload(name, shown, Protocol(values=cohort.opened.query.length))
        assert form.tag is not None
        expected = [number(slot, derived, 1 << derived.bits) for slot in form.slots]
        count += sum(a != b for a, b in zip(slots, expected, strict=True)) + (tag != number(form.tag, derived, PRIME))
    return count


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_plaintext_of_an_upload_is_the_model_s_form(cohort, attempt):
    cohort.contribute(attempt)
    digest = cohort.cohort.digest
    assert differences(cohort, Shown(attempt, EVERYONE), digest, digest) == 0


def test_an_upload_for_another_cohort_has_other_masks_and_pads(cohort):
    cohort.contribute(1)
    shown = Shown(1, EVERYONE, variant=1)
    assert differences(cohort, shown, OTHER_DIGEST, OTHER_DIGEST) == 0
    plaintexts_of_all = len(ROWS) * (cohort.opened.query.length + 2)
    assert differences(cohort, shown, cohort.cohort.digest, OTHER_DIGEST) == plaintexts_of_all


def test_the_learner_s_condition_is_the_model_s(cohort):
    """The product's tag is the pads and the polynomial of the values: what the model demands of a changed total."""
    cohort.contribute(1)
    derived = Derived(cohort, {Shown(1, EVERYONE).digest: cohort.cohort.digest})
    values = cohort.total(*ROWS).values
    product = cohort.product([cohort.chunks[name] for name in ROWS])
    tag = plaintexts(cohort, product)[1]
    pads = [number(pad_of(name, Shown(1, EVERYONE), TODAY), derived, PRIME) for name in ROWS]
    numbers = tuple(Form.number(int(value)) for value in values)
    h = number(polynomial(numbers, alpha(Shown(1, EVERYONE), TODAY)), derived, PRIME)
    assert tag % PRIME == (sum(pads) + h) % PRIME


def test_unknowns_that_the_model_takes_apart_are_derived_apart(cohort):
    """For two attempts and two cohorts with the same mask keys, and digests that do not have the attempt in them."""
    digests = [sha256(b"one"), sha256(b"another")]
    shown = [Shown(attempt, EVERYONE, variant) for attempt in (1, 2) for variant in (0, 1)]
    derived = Derived(cohort, {each.digest: digests[each.variant] for each in shown})
    protocol = Protocol(values=cohort.opened.query.length)
    forms = [form for each in shown for name in ROWS for form in all_plaintexts(upload(name, each, protocol))]
    unknowns = {unknown for form in forms for unknown in form.unknowns}
    apart = {unknown: derived(unknown) for unknown in unknowns if unknown.kind in {Kind.MASK, Kind.PAD, Kind.ALPHA}}
    # Three pairs with a mask for each slot and the tag, three pads, and a coefficient for each attempt.
    assert len(apart) == len(shown) * (3 * (protocol.values + 2) + 3) + 2
    assert len(set(apart.values())) == len(apart)


def all_plaintexts(sent: Upload) -> list[Form]:
    assert sent.tag is not None
    return [*sent.slots, sent.tag]
