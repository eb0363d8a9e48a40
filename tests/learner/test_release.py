import base64
import errno
import hashlib
import json
import math
import shutil
import tempfile
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpcore.accounting.gaussian import gaussian_epsilon, gaussian_mu
from dpcore.estimators.base import RadoSample
from dpcore.queries.statement import statement_for
from learner.composition import composed_privacy, sentences
from learner.decryption import CohortError
from learner.release import Release, ReleaseError
from learner.requests import MomentsRequest
from tests.federation.learner import REQUEST, SCHEMA, World
from wire.envelopes import MessageType, SigningKey
from wire.errors import Code, WireError
from wire.query import open_query, setting_of

NOW = 1_800_000_000
ROWS = {"ada": 100, "bo": 200, "cy": 300}


def make_release(world, integers=None, **changes):
    opened = world.ask(replace(REQUEST, rados=4))
    total = world.total(opened, ROWS)
    query = opened.query
    fields = {
        "query_envelope": opened.envelope,
        "roster_envelope": world.roster_envelope,
        "cohort": total.cohort,
        "receipts": total.receipts,
        "statement": statement_for(
            query.kind, list(ROWS.values()), query.delta, schema=SCHEMA, setting=setting_of(query)
        ),
        "created_at_unix_s": NOW,
        "integers": np.arange(12, dtype=np.int64).reshape(4, 3) - 5 if integers is None else integers,
    }
    return Release(**(fields | changes))


@pytest.fixture(scope="module")
def world(learner_key):
    """Shared, because no test changes it and a plan is slow."""
    return World(learner_key, dict(ROWS))


@pytest.fixture(scope="module")
def release(world):
    return make_release(world)


@pytest.fixture
def saved(release, tmp_path):
    release.save(tmp_path / "release")
    return tmp_path / "release"


def change_json(directory, change, *, forge=False):
    """Edit release.json; if `forge`, with a recomputed digest."""
    path = directory / "release.json"
    content = json.loads(path.read_text())
    change(content)
    if forge:
        content.pop("digest")
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        array = np.load(directory / "rados.npy").astype("<i8").tobytes()
        domain = b"rado.v1/release\0" + len(text).to_bytes(8, "big")
        content["digest"] = hashlib.sha256(domain + text + array).hexdigest()
    path.write_text(json.dumps(content))


@given(integers=arrays.arrays(np.int64, (4, 3), elements=st.integers(-(1 << 62), 1 << 62)))
def test_what_is_saved_reads_back(release, integers):
    release = replace(release, integers=integers)
    with tempfile.TemporaryDirectory() as directory:
        release.save(Path(directory) / "deep" / "release")
        again = Release.load(Path(directory) / "deep" / "release")
    assert np.array_equal(again.integers, integers)
    assert again.digest == release.digest
    for name in ("query_envelope", "roster_envelope", "cohort", "receipts", "statement", "created_at_unix_s", "query"):
        assert getattr(again, name) == getattr(release, name)


def test_everything_needed_to_use_it_is_there(saved, world):
    release = Release.load(saved)
    assert release.schema == SCHEMA
    assert release.party_rows == ROWS
    assert release.rows == 600
    assert release.bias is True
    assert release.query.kind.rados == 4
    assert release.statement.scope == "marginal"
    unit = 2.0**-release.query.encoding.fraction_bits
    assert np.array_equal(release.rados, (np.arange(12.0).reshape(4, 3) - 5) * unit)
    sample = RadoSample(release.rados, release.rows, release.bias)
    assert sample.rados.shape == (4, 3)
    release.verify(world.federation_key.public_bytes)


def test_rados_cannot_be_written_to(release):
    for array in (release.rados, release.integers):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_the_callers_array_is_its_own(world):
    integers = np.zeros((4, 3), dtype=np.int64)
    release = make_release(world, integers)
    integers[0, 0] = 7
    assert release.integers[0, 0] == 0


def test_other_programs_can_read_the_files(saved, release):
    content = json.loads((saved / "release.json").read_text())
    assert content["rows_by_party"] == ROWS
    assert content["query_id"] == release.query_id.hex()
    assert content["statement"]["epsilon"] == release.statement.epsilon
    assert hashlib.sha256(base64.b64decode(content["query"]["payload"])).hexdigest() == content["query_id"]
    assert sorted(path.name for path in saved.iterdir()) == ["rados.npy", "release.json"]


FIELDS = [
    "format_version", "query_id", "created_at", "created_at_unix_s", "rados", "rows", "rows_by_party", "encoding",
    "schema", "statement", "attempt", "query", "roster", "acceptances", "receipts", "digest",
]  # fmt: skip


def test_every_field_is_in_the_list(saved):
    assert set(json.loads((saved / "release.json").read_text())) == {*FIELDS, "format"}


def altered(value):
    match value:
        case int():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1] != "0" else "1")
        case list():
            return value[1:]
        case dict():
            key = min(value)
            return {**value, key: altered(value[key])}
        case _:
            return "something"


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_field_is_refused(saved, field):
    change_json(saved, lambda content: content.update({field: altered(content[field])}))
    with pytest.raises(ReleaseError):
        Release.load(saved)


@pytest.mark.parametrize("field", FIELDS)
def test_an_absent_field_is_refused(saved, field):
    change_json(saved, lambda content: content.pop(field))
    with pytest.raises(ReleaseError):
        Release.load(saved)


def test_a_better_statement_is_refused(saved):
    change_json(saved, lambda content: content["statement"].update(epsilon=0.001))
    with pytest.raises(ReleaseError, match="the release was changed after it was saved"):
        Release.load(saved)


def test_a_removed_warning_is_refused(saved):
    change_json(saved, lambda content: content["statement"]["warnings"].pop())
    with pytest.raises(ReleaseError, match="digest"):
        Release.load(saved)


def test_a_changed_array_is_refused(saved):
    array = np.load(saved / "rados.npy")
    array[3, 2] += 1
    np.save(saved / "rados.npy", array)
    with pytest.raises(ReleaseError, match="digest"):
        Release.load(saved)


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 3)), np.zeros(12, dtype=np.int64), np.zeros((3, 4), dtype=np.int64), np.array([[{}]], dtype=object)],
)
def test_another_kind_of_array_is_refused(saved, array):
    np.save(saved / "rados.npy", array, allow_pickle=True)
    with pytest.raises(ReleaseError):
        Release.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(rows=601),
        lambda content: content["rows_by_party"].update(ada=1000),
        lambda content: content["encoding"].update(fraction_bits=8),
        lambda content: content["rados"].update(unit="2^-8"),
        lambda content: content.update(query_id="00" * 32),
        lambda content: content.update(schema="{}"),
        lambda content: content.update(unknown=1),
        lambda content: content.update(created_at="2000-01-01T00:00:00+00:00"),
    ],
)
def test_a_forged_field_contradicts_what_is_signed(saved, change):
    change_json(saved, change, forge=True)
    with pytest.raises(ReleaseError, match="contradict"):
        Release.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["query"].update(payload="AAAA"),
        lambda content: content["query"].update(payload="?"),
        lambda content: content.update(query=7),
        lambda content: content.update(statement=[]),
        lambda content: content.update(receipts=content["receipts"][1:]),
        lambda content: content.update(created_at_unix_s=1e300),
        lambda content: content.pop("acceptances"),
    ],
)
def test_a_malformed_forgery_is_an_error_of_ours(saved, change):
    change_json(saved, change, forge=True)
    with pytest.raises(ReleaseError):
        Release.load(saved)


def test_a_forged_signature_is_found_by_verify(saved, world):
    def forge(content):
        signature = bytearray(base64.b64decode(content["receipts"][0]["signature"]))
        signature[0] ^= 1
        content["receipts"][0]["signature"] = base64.b64encode(signature).decode()

    change_json(saved, forge, forge=True)
    with pytest.raises(WireError) as caught:
        Release.load(saved).verify(world.federation_key.public_bytes)
    assert caught.value.code is Code.SIGNATURE_INVALID


def test_verify_needs_the_pinned_key(release):
    with pytest.raises(WireError) as caught:
        release.verify(SigningKey.generate("clinics").public_bytes)
    assert caught.value.code is Code.SIGNATURE_INVALID


def test_verify_finds_a_cohort_that_the_query_does_not_allow(world):
    opened = world.ask(replace(REQUEST, rados=4))
    total = world.total(opened, {"ada": 9000, "bo": 1000, "cy": 1})
    release = make_release(world, query_envelope=opened.envelope, cohort=total.cohort, receipts=total.receipts)
    with pytest.raises(CohortError, match="10001 rows"):
        release.verify(world.federation_key.public_bytes)


def test_parts_that_do_not_belong_together(world, release):
    other = make_release(world)
    with pytest.raises(ReleaseError, match="another query's"):
        replace(release, cohort=other.cohort)
    with pytest.raises(ReleaseError, match="one receipt for each"):
        replace(release, receipts=release.receipts[1:])
    with pytest.raises(ReleaseError, match="asked for int64"):
        replace(release, integers=np.zeros((3, 4), dtype=np.int64))
    with pytest.raises(ReleaseError, match="asked for int64"):
        replace(release, integers=np.zeros((4, 3)))


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"format": "other"}', "\ud800"])
def test_a_directory_that_is_not_a_release(tmp_path, content):
    if content is not None:
        (tmp_path / "release.json").write_text(content, errors="surrogatepass")
        np.save(tmp_path / "rados.npy", np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(ReleaseError):
        Release.load(tmp_path)


def test_a_release_of_a_newer_format(saved):
    change_json(saved, lambda content: content.update(format_version=2), forge=True)
    with pytest.raises(ReleaseError, match="format version 2 is not 1; update radofed"):
        Release.load(saved)


def test_a_truncated_array(saved):
    octets = (saved / "rados.npy").read_bytes()
    (saved / "rados.npy").write_bytes(octets[:-8])
    with pytest.raises(ReleaseError):
        Release.load(saved)


def test_a_release_is_never_overwritten(saved, world):
    before = (saved / "release.json").read_bytes()
    with pytest.raises(ReleaseError, match="never overwritten"):
        make_release(world).save(saved)
    assert (saved / "release.json").read_bytes() == before


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_full_disk_leaves_nothing(release, tmp_path, monkeypatch, fails_at):
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ReleaseError, match="No space left"):
        release.save(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []
    release.save(tmp_path / "release")
    assert Release.load(tmp_path / "release").digest == release.digest


def test_a_copy_is_the_same_release(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "copy")
    assert Release.load(tmp_path / "copy").digest == Release.load(saved).digest


def later(world, attempt, **changes) -> Release:
    """A release of moments whose total is of this attempt."""
    request = MomentsRequest(schema=SCHEMA, epsilon=Fraction(1), max_rows=10_000)
    envelope = world.learner_key.sign(MessageType.QUERY, world.plan(request).query.to_bytes())
    opened = open_query(envelope, world.roster, now_unix_s=time.time())
    total = world.total(opened, ROWS, attempt=attempt)
    query = opened.query
    fields = {
        "query_envelope": opened.envelope,
        "roster_envelope": world.roster_envelope,
        "cohort": total.cohort,
        "receipts": total.receipts,
        "statement": statement_for(
            query.kind, list(ROWS.values()), query.delta, schema=SCHEMA, setting=setting_of(query), attempts=attempt
        ),
        "created_at_unix_s": NOW,
        "integers": np.zeros(query.kind.shape(SCHEMA.d), dtype=np.int64),
    }
    return Release(**(fields | changes))


DELTA = Fraction(1, 10**6)


def test_releases_of_later_attempts_count_every_attempt_under_collusion(world):
    """A total of attempt 2 and one of attempt 1: two totals for the learner alone, three for a coalition."""
    first, second = later(world, 1), later(world, 2)
    assert (first.attempts, second.attempts) == (1, 2)
    mu = gaussian_mu(Fraction(1), DELTA)
    once, twice, both = (composed_privacy(given, DELTA) for given in ([first], [second], [first, second]))
    assert once.epsilon == twice.epsilon
    for cost, held in ((once, 1), (twice, 2), (both, 3)):
        expected = gaussian_epsilon(mu * math.sqrt(held), DELTA).upper
        assert cost.epsilon_if_others_collude == pytest.approx(expected, rel=1e-3)
    assert second.statement.epsilon_if_others_collude == pytest.approx(twice.epsilon_if_others_collude, rel=1e-9)
    said = sentences(both, [first, second], "one record")
    assert "counts every attempt that may have a total, 3 in all" in said[2]
    assert "the releases are all that the learner opened" in said[3]
    assert "the release is all that the learner opened" in sentences(once, [first], "one record")[3]


def test_attempts_that_were_signed_are_saved(world, tmp_path):
    release = later(world, 1, attempts_signed=2)
    release.save(tmp_path / "two")
    assert Release.load(tmp_path / "two").attempts == 2
    plain = later(world, 2, attempts_signed=2)
    # Only where it says more than the attempt.
    assert "attempts_signed" not in plain.to_json()
    for wrong in (0, "2", 2.5, None):
        with pytest.raises(ReleaseError):
            later(world, 1, attempts_signed=wrong)


def test_a_release_of_rados_has_no_moments_and_one_of_moments_no_rados(world, release):
    with pytest.raises(ReleaseError, match="give one of moments"):
        _ = release.moments
    opened = world.ask(MomentsRequest(schema=SCHEMA, max_rows=10_000, epsilon=Fraction(1)))
    kind = opened.query.kind
    total = world.total(opened, ROWS)
    made = make_release(
        world,
        np.zeros(kind.shape(SCHEMA.d), dtype=np.int64),
        query_envelope=opened.envelope,
        cohort=total.cohort,
        receipts=total.receipts,
    )
    with pytest.raises(ReleaseError, match="give one of rados"):
        _ = made.rados
