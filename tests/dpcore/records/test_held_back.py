"""Which rows are held back, and what sums over a part of the rows are."""

import hashlib
import hmac
import math
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.accounting.protection import Setting
from dpcore.errors import PlanError, ShapeError
from dpcore.predicates.evaluation import sums
from dpcore.predicates.notation import parse
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import GaussianDesign
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation
from dpcore.records.encoding import store
from dpcore.records.held_back import HeldBack, Part, RowKey, RowNumbers
from dpcore.records.records import BLOCK_ROWS, Records
from tests.federation.material import SMALL

SECRET = bytes(range(32))
KEY = RowKey(SECRET, "clinics", "north", "data.csv")
FIFTH = Fraction(1, 5)
TRAINING, HELD_BACK = (HeldBack(FIFTH, part) for part in (Part.TRAINING, Part.HELD_BACK))
CLIP = Clip(Fraction(3, 2), SMALL.bias)
BITS = 10


def table(rows: int, seed: int = 0) -> Records:
    """Made-up rows, every seventh of which cannot be used."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, rows), random.choice([-1.0, 1.0], rows), np.ones(rows)])
    labels, usable = random.choice([-1, 1], rows).astype(np.int8), np.arange(rows) % 7 != 0
    x[~usable], labels[~usable] = 0.0, 1
    return Records(store(x), labels, usable)


def split(records: Records, numbers: RowNumbers | None = None) -> tuple[Records, Records]:
    numbers = numbers or RowNumbers(KEY)
    return numbers.part_of(records, TRAINING), numbers.part_of(records, HELD_BACK)


# Which rows.


def hkdf(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) of one block, without salt, by hand."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")


def info(purpose: bytes) -> bytes:
    names = b"".join(len(name).to_bytes(4, "big") + name for name in (b"clinics", b"north", b"data.csv"))
    return b"rado.v1/held-back\0" + purpose + b"\0" + names


def test_numbers_are_those_of_the_documented_functions():
    """A change of the rule would move rows that a model was trained on to the other side."""
    key = hkdf(SECRET, info(b"id"))
    ids = ["p-1", "", "Zürich"]
    expected = [int.from_bytes(hmac.new(key, text.encode(), hashlib.sha256).digest()[:8], "big") for text in ids]
    assert KEY.of_ids(ids).tolist() == expected
    stream = Cipher(algorithms.AES(hkdf(SECRET, info(b"place"))), modes.CTR(bytes(16))).encryptor().update(bytes(800))
    assert KEY.of_places(100).tolist() == [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(100)]


def test_a_number_depends_on_place_or_id_alone():
    assert KEY.of_places(50).tolist() == KEY.of_places(5000)[:50].tolist()
    ids = [f"patient {i}" for i in range(200)]
    numbers = dict(zip(ids, KEY.of_ids(ids), strict=True))
    assert KEY.of_ids(ids[::-1]).tolist() == [numbers[text] for text in ids[::-1]]
    assert KEY.of_ids(["patient 3", "patient 3"]).tolist() == [numbers["patient 3"]] * 2
    assert len(set(numbers.values())) == 200


@pytest.mark.parametrize(
    "other",
    [
        RowKey(bytes(32), "clinics", "north", "data.csv"),
        RowKey(SECRET, "clinic", "snorth", "data.csv"),
        RowKey(SECRET, "clinics", "south", "data.csv"),
        RowKey(SECRET, "clinics", "northd", "ata.csv"),
        RowKey(SECRET, "clinics", "north", "data2.csv"),
    ],
    ids=["secret", "federation", "party", "a name moved", "source"],
)
def test_numbers_differ_for_every_secret_federation_party_and_source(other):
    assert not set(KEY.of_places(1000).tolist()) & set(other.of_places(1000).tolist())
    ids = [str(i) for i in range(1000)]
    assert not set(KEY.of_ids(ids).tolist()) & set(other.of_ids(ids).tolist())


def test_the_key_is_not_shown():
    assert SECRET.hex() not in repr(RowNumbers(KEY))
    assert repr(SECRET) not in repr(RowNumbers(KEY))


@pytest.mark.parametrize("by", ["place", "id"])
def test_numbers_are_uniform_and_pairs_of_neighbours_independent(by):
    rows = 40_000
    numbers = KEY.of_places(rows) if by == "place" else KEY.of_ids(str(i) for i in range(rows))
    high = (numbers >> np.uint64(60)).astype(np.int64)
    pairs = high[0::2] * 16 + high[1::2]
    # The key is fixed: this is the same every time.
    assert stats.chisquare(np.bincount(high, minlength=16)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(pairs, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize(
    "share", [Fraction(1, 10**6), Fraction(1, 5), Fraction(1, 3), Fraction((1 << 63) - 2, (1 << 63) - 1)]
)
def test_every_row_is_in_one_part_and_shares_are_nested(share):
    numbers = np.concatenate([KEY.of_places(20_000), np.array([0, (1 << 64) - 1], dtype=np.uint64)])
    held, kept = (HeldBack(share, part).contains(numbers) for part in (Part.HELD_BACK, Part.TRAINING))
    assert (held ^ kept).all()
    larger = (
        HeldBack((share + 1) / 2, Part.HELD_BACK) if share.denominator < 1 << 62 else HeldBack(share, Part.HELD_BACK)
    )
    assert not (held & ~larger.contains(numbers)).any()
    assert held[-2]
    assert kept[-1]
    assert abs(held[:-2].mean() - share) < 4.5 * math.sqrt(share * (1 - share) / 20_000) + 1e-9


def test_the_border_is_exact():
    border = -(-(1 << 64) // 5)
    numbers = np.array([border - 1, border], dtype=np.uint64)
    assert HELD_BACK.contains(numbers).tolist() == [True, False]
    assert TRAINING.contains(numbers).tolist() == [False, True]


@pytest.mark.parametrize(
    "share", [Fraction(0), Fraction(1), Fraction(-1, 5), Fraction(6, 5), 0.2, Fraction(1, 1 << 63)]
)
def test_other_shares_are_refused(share):
    with pytest.raises(PlanError, match="share of rows"):
        HeldBack(share, Part.TRAINING)


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 3), Fraction((1 << 62) - 1, 1 << 62)])
def test_every_row_of_a_part_is_in_one_piece_of_it(share):
    edges = [0, 1, (1 << 64) // 3, (1 << 64) // 3 + 1, (1 << 64) - 1]
    numbers = np.concatenate([np.array(edges, dtype=np.uint64), np.arange(100, dtype=np.uint64) << np.uint64(57)])
    for part in Part if share else [Part.TRAINING]:
        whole = HeldBack(share, part) if share else None
        pieces = [HeldBack.piece_of(whole, 7, place) for place in range(7)]
        inside = np.ones(len(numbers), dtype=bool) if whole is None else whole.contains(numbers)
        assert np.array_equal(np.sum([piece.contains(numbers) for piece in pieces], axis=0), inside)
        assert sum(piece.chance for piece in pieces) == (1 if whole is None else whole.chance)


def test_rows_of_pieces_are_as_many_and_drawn_alike():
    numbers = RowKey(bytes(32), "clinics", "ada", "data").of_places(70_000)
    counts = [HeldBack.piece_of(None, 7, place).contains(numbers).sum() for place in range(7)]
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize(("pieces", "piece"), [(1, 0), (3, 3), (3, -1), (0, 1), ((1 << 16) + 1, 0)])
def test_other_pieces_are_refused(pieces, piece):
    with pytest.raises(PlanError, match="cut rows into 2 to 65536 pieces"):
        HeldBack(Fraction(1, 5), Part.TRAINING, pieces, piece)


def test_rows_to_divide_by():
    assert (TRAINING.chance, HELD_BACK.chance) == (Fraction(4, 5), FIFTH)
    assert [TRAINING.rows(m) for m in (0, 1, 3, 1000)] == [0, 1, 2, 800]
    assert [HELD_BACK.rows(m) for m in (0, 1, 3, 1000)] == [0, 1, 1, 200]
    assert HELD_BACK.rows_deviation(1000) == pytest.approx(math.sqrt(160))
    assert {HeldBack(FIFTH, part).words() for part in Part} == {
        "the part of the rows that each party holds back, a share of 0.2",
        "the rows without those that each party holds back, a share of 0.2",
    }


def test_numbers_of_other_rows_are_refused():
    with pytest.raises(ShapeError, match="number the same rows"):
        RowNumbers(KEY, KEY.of_ids(["a", "b"])).part_of(table(3), TRAINING)


# Sums.


def exact_sums(records: Records) -> dict[str, np.ndarray]:
    """What each kind that takes parts computes over records, without noise."""
    gaussian = RadosQuery(6, GaussianDesign(CLIP, 3))
    predicates = tuple(map(parse, ("y == 1", 'z["x0"] >= 0', 'x["s"] | (y == -1)', "~(y == 1)")))
    prepared = gaussian.prepare(records, BITS)
    return {
        "moments": MomentsQuery(CLIP, 40, 3).sums(records, BITS),
        "gradient": GradientQuery("logistic", (5 << 20, -(2 << 20), 1 << 19), Fraction(1), 3).sums(records, BITS),
        "gaussian": prepared.drawn_sums(6, Computation(SeededRandom(b"signatures"))).reshape(-1),
        "statistic": sums(predicates, SMALL, records, 0),
    }


KINDS = ("moments", "gradient", "gaussian", "statistic")


@pytest.mark.parametrize("rows", [5, 400, 2 * BLOCK_ROWS + 13])
def test_the_sums_of_both_parts_add_up_to_those_of_all_rows(rows):
    records = table(rows)
    training, held_back = map(exact_sums, split(records))
    whole = exact_sums(records)
    for kind in KINDS:
        assert (training[kind] + held_back[kind] == whole[kind]).all()
        assert rows < 10 or training[kind].any()
        assert rows < 10 or held_back[kind].any()


@pytest.mark.parametrize("part", [0, 1])
def test_a_row_outside_the_part_is_a_zero_vector(part):
    """The sums are those of a table in which these rows are not usable, and of one without them."""
    records = split(table(3000))[part]
    zeroed = records.zeroed()
    assert not zeroed.features[~records.usable].any()
    assert (zeroed.labels[~records.usable] == 1).all()
    assert records.rows == 3000
    assert records.features.any(axis=1).sum() > records.usable.sum() + 100
    alone = Records(
        records.features[records.usable], records.labels[records.usable], np.ones(records.usable.sum(), bool)
    )
    found, expected, without = map(exact_sums, (records, zeroed, alone))
    for kind in KINDS:
        assert (found[kind] == expected[kind]).all()
        assert kind == "gaussian" or (found[kind] == without[kind]).all()


def test_a_part_has_its_own_digest_and_leaves_the_records_as_they_are():
    records = table(100)
    before = records.digest, records.usable.sum()
    parts = split(records)
    assert len({part.digest for part in parts} | {records.digest}) == 3
    assert (records.digest, records.usable.sum()) == before
    with pytest.raises(ValueError, match="read-only"):
        parts[0].usable[0] = True


# Privacy: replacing a record, also by one on the other side.

SETTING = Setting(SMALL.d, BITS, 1)
QUERIES = {
    "moments": MomentsQuery(CLIP, 40, 3),
    "gradient": GradientQuery("logistic", (5 << 20, -(2 << 20), 1 << 19), Fraction(1), 3),
    "statistic": StatisticQuery((parse("y == 1"), parse('z["x0"] >= 0')), SMALL, GaussianShares(3)),
}


def squared_distance(kind: str, one: Records, other: Records) -> int:
    query = QUERIES[kind]
    bits = 0 if kind == "statistic" else BITS

    def vector(records):
        if kind == "statistic":
            return sums(query.predicates, SMALL, records, bits)
        return query.sums(records, bits)

    return int(sum(int(change) ** 2 for change in vector(one) - vector(other)))


@pytest.mark.parametrize("kind", QUERIES)
def test_a_replaced_record_moves_either_part_within_the_bound_of_all_rows(kind):
    """Also where its id, and so its side, changes: then both answers move, each within the bound of a record alone."""
    random = np.random.default_rng(7)
    setting = Setting(SMALL.d, 0, 1) if kind == "statistic" else SETTING
    protection = QUERIES[kind].protection(setting)
    bound, alone = protection.squared, protection.of_presence().squared
    largest = crossed = together = alone_found = 0
    base = table(20)
    for trial in range(300):
        place = int(random.integers(20))
        corner = np.append(random.choice([-1.0, 1.0], 2), 1.0)
        features, labels = base.features.copy(), base.labels.copy()
        features[place], labels[place] = store(corner), random.choice([-1, 1])
        usable = base.usable.copy()
        usable[place] = True
        other = Records(features, labels, usable)
        ids = [f"{trial}/{i}" for i in range(20)]
        new = [*ids]
        new[place] = f"{trial}/new"
        before, after = (RowNumbers(KEY, KEY.of_ids(names)) for names in (ids, new))
        moved = [squared_distance(kind, a, b) for a, b in zip(split(base, before), split(other, after), strict=True)]
        largest, together = max(largest, *moved), max(together, sum(moved))
        # One answer alone moves, or the record leaves one part and joins the other.
        if all(moved):
            crossed += 1
            alone_found = max(alone_found, *moved)
    assert largest <= bound
    assert alone / 2 < alone_found <= alone
    assert crossed > 10
    # The search can find a bound that is too small: half the distance is not one.
    assert largest > bound / 4
    # To charge the larger answer alone is too little where leaving moves a sum as far as replacing.
    assert kind != "statistic" or together > bound
    assert together <= max(bound, 2 * alone)
