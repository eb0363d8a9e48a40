"""One-bit rounding: a record keeps its sign over all queries; another secret or schema gives another sign."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.rados import RadosQuery
from dpcore.rados.compiled import draw_signs
from dpcore.rados.designs import DpFeatDesign, SensitiveFeature
from dpcore.rados.rounding import _RUN_ROWS, _codes, rounded
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import BLOCK_ROWS, Records

SECRET, SCHEMA = bytes(range(32)), b"s" * 32
PARTY_SECRET = PartySecret(SECRET, SCHEMA)
UNUSABLE = [4, 90]


def records(rows: int = 400, seed: int = 1) -> Records:
    generator = np.random.default_rng(seed)
    # Half of the values are near zero, so that their signs are random.
    features = generator.integers(-ONE // 8, ONE // 8, size=(rows, 4)).astype(np.int32)
    features[:, -1] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    usable = np.ones(rows, dtype=np.bool_)
    features[UNUSABLE], labels[UNUSABLE], usable[UNUSABLE] = 0, 1, False
    return Records(features, labels, usable)


HELD = records()


def signs(coordinate: int = 0, held: Records = HELD, secret: bytes = SECRET, schema: bytes = SCHEMA) -> np.ndarray:
    return rounded(held, [coordinate], PartySecret(secret, schema)).features[:, coordinate]


def design(*rounded_coordinates: int) -> DpFeatDesign:
    return DpFeatDesign(tuple(SensitiveFeature(j, f"x{j}", rounded=True) for j in rounded_coordinates))


def test_a_secret_repeats_its_signs():
    assert np.array_equal(signs(), signs(held=records()))
    assert set(np.unique(np.delete(signs(), UNUSABLE))) == {-ONE, ONE}


@pytest.mark.parametrize(
    "others",
    [signs(secret=bytes(32)), signs(schema=b"t" * 32), signs(coordinate=1)],
    ids=["secret", "schema", "coordinate"],
)
def test_another_secret_schema_or_coordinate_gives_independent_signs(others):
    # Agreement of 398 fair coins: within five standard deviations of a half.
    agreeing = (signs() == others)[HELD.usable].mean()
    assert abs(agreeing - 0.5) < 0.125


def test_the_signs_are_pinned():
    """A record's sign must never change. If this fails, use another domain in the key."""
    packed = np.packbits(signs() > 0).tobytes()
    assert hashlib.sha256(packed).hexdigest() == "b4b01fcd937805e825f1696a3b9d9d46187520bad3cb786eb37db392acbf24c8"


def cbc(held: Records, row: int, number: int, key: bytes) -> int:
    """The code of a row by the library's CBC mode, of its features, its label and how many rows like it come before."""
    content = held.features[row].astype("<i4").tobytes() + int(held.labels[row]).to_bytes(4, "little", signed=True)
    numbered = content + bytes(-len(content) % 16) + number.to_bytes(16, "little")
    cipher = Cipher(algorithms.AES256(key), modes.CBC(bytes(16))).encryptor()
    return int.from_bytes(cipher.update(numbered)[-16:-12], "little") >> 1


@pytest.mark.parametrize("d", [1, 4, 7])
def test_the_keyed_function_is_aes_in_cbc_mode(d):
    """Computed record by record; copies of a record are told apart by their number. Of d = 7 the label ends a block."""
    features = np.tile(HELD.features, (1, 2))[:60, :d]
    held = Records(np.ascontiguousarray(features), HELD.labels[:60], HELD.usable[:60])
    twice = Records(*(np.concatenate([a, a]) for a in (held.features, held.labels, held.usable)))
    key, seen = bytes(range(32)), Counter()
    for row, code in enumerate(_codes(twice, key).tolist()):
        content = (*twice.features[row].tolist(), int(twice.labels[row]))
        assert code == cbc(twice, row, seen[content], key)
        seen[content] += 1
    assert len(seen) > 1


def test_copies_of_a_record_are_numbered_in_their_order_over_runs_of_rows():
    rows = 2 * _RUN_ROWS + 5000
    features = np.tile(np.array([[0, ONE]], dtype=np.int32), (rows, 1))
    features[0, 0] = 1
    held, key = Records(features, np.ones(rows, np.int8), np.ones(rows, bool)), bytes(32)
    codes = _codes(held, key)
    for row in (0, 1, 2, BLOCK_ROWS, BLOCK_ROWS + 1, _RUN_ROWS, _RUN_ROWS + 1, 2 * _RUN_ROWS, rows - 1):
        assert codes[row] == cbc(held, row, max(row - 1, 0), key)


def test_a_sign_is_plus_if_and_only_if_the_code_is_below_the_value():
    values, codes = [-ONE, -5, -5, 7, ONE - 1, ONE, 7], [0, ONE - 6, ONE - 5, ONE + 7, 2 * ONE - 2, 2 * ONE - 1, 0]
    features, signs = np.array([[9, value] for value in values], dtype=np.int32), np.empty(7, dtype=np.int8)
    draw_signs(features, 1, np.array([True] * 6 + [False]), np.array(codes, dtype=np.uint32), signs)
    assert signs.tolist() == [-1, 1, -1, -1, 1, 1, 0]


def test_another_content_gives_an_independent_sign_and_leaves_the_others():
    features = HELD.features.copy()
    features[:200, 1] ^= 1
    features[UNUSABLE] = 0
    changed = signs(held=Records(features, HELD.labels, HELD.usable))
    assert np.array_equal(changed[200:], signs()[200:])
    assert abs((changed[:200] == signs()[:200]).mean() - 0.5) < 0.18
    flipped = signs(held=Records(HELD.features, np.where(HELD.usable, -HELD.labels, 1).astype(np.int8), HELD.usable))
    assert abs((flipped == signs())[HELD.usable].mean() - 0.5) < 0.125


def test_a_sign_goes_with_its_record_and_not_with_its_place():
    order = np.random.default_rng(3).permutation(HELD.rows)
    moved = Records(HELD.features[order], HELD.labels[order], HELD.usable[order])
    assert np.array_equal(signs(held=moved), signs()[order])


def test_a_sign_does_not_depend_on_what_else_is_rounded():
    """Otherwise a learner who queries x0, then x0 and x1, then x0 and x2, averages the rounding of x0 away."""
    for others in ([0, 1], [1, 0], [0, 1, 2], [2, 0]):
        found = rounded(HELD, others, PARTY_SECRET)
        for coordinate in others:
            assert np.array_equal(found.features[:, coordinate], signs(coordinate))
    both, alone = (RadosQuery(1, design(*names)).prepare(HELD, 16, PARTY_SECRET) for names in ((0, 1), (1,)))
    assert np.array_equal(both.records.features[:, 1], alone.records.features[:, 1])


def test_the_signs_of_two_coordinates_are_independent():
    both = rounded(HELD, [0, 1], PARTY_SECRET).features[HELD.usable] // ONE
    assert abs((both[:, 0] * both[:, 1]).mean()) < 0.25


def test_records_with_the_same_content_have_signs_of_their_own():
    features = np.tile(np.array([[0, 7, 9, ONE]], dtype=np.int32), (300, 1))
    same = Records(features, np.ones(300, np.int8), np.ones(300, bool))
    plus = (signs(held=same) > 0).mean()
    assert abs(plus - 0.5) < 0.145


def test_other_values_stay():
    result = rounded(HELD, [1], PARTY_SECRET)
    assert np.array_equal(np.delete(result.features, 1, axis=1), np.delete(HELD.features, 1, axis=1))
    assert np.array_equal(result.labels, HELD.labels)
    assert np.array_equal(result.usable, HELD.usable)
    assert not result.features[UNUSABLE].any()
    assert result.digest != HELD.digest


def test_rounded_features_are_read_like_an_array():
    features = rounded(HELD, [0, 2], PARTY_SECRET).features
    whole = np.asarray(features)
    assert (features.shape, len(features), features.dtype, features.ndim) == (whole.shape, 400, whole.dtype, 2)
    assert np.array_equal(whole[:, [0, 2]], np.stack([signs(0), signs(2)], axis=1))
    assert np.array_equal(whole[:, [1, 3]], HELD.features[:, [1, 3]])
    for index in (7, [5, 2], HELD.usable, (slice(None), 2), (slice(3, 9), slice(1, 3)), (slice(None), (2, 1))):
        assert np.array_equal(features[index], whole[index])
    part = features[100:200][10:]
    assert not isinstance(part, np.ndarray)
    assert np.array_equal(part, whole[110:200])
    with pytest.raises(ValueError, match="copy"):
        np.array(features, copy=False)


def test_values_at_the_ends_are_certain():
    features = np.full((200, 2), ONE, dtype=np.int32)
    features[:100, 0] = -ONE
    held = Records(features, np.ones(200, np.int8), np.ones(200, bool))
    assert signs(held=held).tolist() == [-ONE] * 100 + [ONE] * 100


def test_a_rado_counts_rows_that_are_not_usable_as_one():
    prepared = RadosQuery(1, design(0)).prepare(HELD, 16, PARTY_SECRET)
    single = np.packbits(np.eye(HELD.rows, dtype=np.uint8), axis=1, bitorder="little")
    edges = prepared.sums_of(single)
    assert edges[UNUSABLE].tolist() == [[1 << 16, 0, 0, 0]] * 2
    assert np.array_equal(edges[:, 0], np.where(HELD.usable, HELD.labels * (signs() >> 14), 1 << 16))


def test_a_contribution_needs_the_secret_and_repeats_the_rounding():
    query = RadosQuery(30, design(0))
    with pytest.raises(ConfigurationError, match="secret"):
        query.contribution(HELD, 16, Computation(SeededRandom(1)))
    first, second = (query.contribution(HELD, 16, Computation(SeededRandom(1), PARTY_SECRET)) for _ in range(2))
    assert np.array_equal(first, second)
    other = query.contribution(HELD, 16, Computation(SeededRandom(1), PartySecret(bytes(32), SCHEMA)))
    differing = (first != other).reshape(30, 4).mean(axis=0)
    assert differing[0] > 0.8
    assert not differing[1:].any()
    with pytest.raises(ConfigurationError, match="31 bytes"):
        PartySecret(bytes(31), SCHEMA)
