"""The packed integers are the computed ones: promise P6 at one party, through the real encryption."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import open_total
from dpcore.predicates.expressions import Constant
from dpcore.predicates.notation import parse
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.randomness.sources import SeededRandom, SystemRandom
from dpcore.records.computation import Computation
from dpcore.records.held_back import HeldBack, Part, RowKey, RowNumbers
from parties.answering.contribution import encrypted_chunks, integer_vector
from parties.ledger.charges import RECORD, charge_for
from tests.federation.party import SCHEMA, make_records, ready


def small_obfuscator(opened) -> Obfuscator:
    # A small comb: little is encrypted here.
    return Obfuscator(opened.public_key, SystemRandom(), short_exponent_bits=512, teeth=4, tables=2)


def decode(opened, secret_key, uploads, rows):
    """The total behind some uploads, as a coordinator adds and a learner opens it."""
    key, query = opened.public_key, opened.query
    products = None
    for chunks in uploads:
        ciphertexts = [c for chunk in chunks for c in key.from_wire(chunk)]
        key.validate(ciphertexts)
        if products is None:
            products = ciphertexts
        else:
            key.add_many(products, ciphertexts)
    plaintexts = secret_key.decrypt_many(products)[: opened.value_ciphertexts]
    return open_total(plaintexts, query.length, len(uploads), query.encoding, key.bits, rows=rows)


@pytest.fixture
def several_chunks(monkeypatch):
    """Two ciphertexts of a 2048-bit key a chunk."""
    monkeypatch.setattr("wire.statements.CHUNK_BYTES", 1024)


@pytest.mark.usefixtures("several_chunks")
def test_the_decoded_total_is_the_sum_of_the_integer_vectors(world, secret_key):
    opened = world.open(world.ask(world.plain_query(150)))
    parts = [make_records(40, seed=1), make_records(70, seed=2), make_records(1, seed=3)]
    values = [integer_vector(opened, records, Computation(SystemRandom())) for records in parts]
    uploads = [
        list(encrypted_chunks(opened, vector, records.rows, small_obfuscator(opened)))
        for vector, records in zip(values, parts, strict=True)
    ]
    for chunks in uploads:
        assert len(chunks) == opened.chunks > 2
        assert {len(chunk) for chunk in chunks[:-1]} == {1024}
        assert sum(map(len, chunks)) == opened.ciphertexts * opened.public_key.ciphertext_bytes
    np.testing.assert_array_equal(decode(opened, secret_key, uploads, 111), sum(values))


def test_the_integers_are_the_query_kinds(world):
    opened = world.open(world.ask())
    records = make_records(40)
    vector = integer_vector(opened, records, Computation(SeededRandom(1)))
    expected = opened.query.kind.contribution(records, 16, Computation(SeededRandom(1)))
    assert vector.dtype == np.int64
    np.testing.assert_array_equal(vector, expected)
    assert not np.array_equal(vector, integer_vector(opened, records, Computation(SeededRandom(2))))


def test_equal_values_are_sent_as_different_bytes(world):
    opened = world.open(world.ask(world.plain_query(2)))
    values = np.zeros(6, dtype=np.int64)
    source = small_obfuscator(opened)
    first, second = (list(encrypted_chunks(opened, values, 5, source)) for _ in range(2))
    assert first != second


@pytest.mark.usefixtures("several_chunks")
def test_progress_is_reported_and_may_stop_the_work(world):
    opened = world.open(world.ask(world.plain_query(150)))
    reported = []
    values = np.zeros(450, dtype=np.int64)
    list(encrypted_chunks(opened, values, 5, small_obfuscator(opened), lambda done, of: reported.append((done, of))))
    assert reported[-1] == (opened.ciphertexts, opened.ciphertexts)
    assert [done for done, _ in reported] == sorted({done for done, _ in reported})

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        integer_vector(opened, make_records(), Computation(SystemRandom(), progress=stop))


def test_records_of_another_width_are_refused(world):
    opened = world.open(world.ask())
    records = make_records()
    narrow = type(records)(records.features[:, 1:].copy(), records.labels, records.usable)
    with pytest.raises(ShapeError, match="coordinates"):
        integer_vector(opened, narrow, Computation(SystemRandom()))


def test_a_contribution_of_another_length_is_not_sent(world, monkeypatch):
    opened = world.open(world.ask(world.plain_query(150)))
    monkeypatch.setattr(RadosQuery, "contribution", lambda *_: np.zeros(7, dtype=np.int64))
    with pytest.raises(ShapeError, match="values"):
        integer_vector(opened, make_records(40, seed=1), Computation(SystemRandom()))


# A part of the rows.

PARTS = [HeldBack(Fraction(1, 5), part) for part in Part]
NUMBERS = RowNumbers(RowKey(bytes(32), "clinics", "ada", "data.csv"))


def about(world, held_back):
    kind = StatisticQuery((Constant(True), parse("y == 1")), SCHEMA, GaussianShares(3))
    encoding = plan_encoding(largest_sum=1 << 20, max_parties=3, fraction_bits=0)
    query = world.query(kind=kind, encoding=encoding, held_back=held_back)
    return world.open(world.ask(query))


def test_a_contribution_about_a_part_is_that_of_its_rows_with_the_same_noise(world):
    records = make_records(400)

    def values(held_back):
        computation = Computation(SeededRandom(1), numbers=NUMBERS)
        return integer_vector(about(world, held_back), records, computation)

    noise = values(None) - [400, (records.labels > 0).sum()]
    held, kept = (values(part) - noise for part in (PARTS[1], PARTS[0]))
    inside = PARTS[1].contains(NUMBERS.key.of_places(400))
    assert held.tolist() == [inside.sum(), (inside & (records.labels > 0)).sum()]
    assert (held + kept + noise == values(None)).all()
    assert 40 < held[0] < 120


def test_rows_without_numbers_answer_about_no_part(world):
    with pytest.raises(ConfigurationError, match="no numbers"):
        integer_vector(about(world, PARTS[0]), make_records(), Computation(SeededRandom(1)))


def test_both_parts_are_charged_as_queries_about_all_rows_and_state_all_rows(ada):
    """No parallel composition, and nothing that is sent beside the sums depends on how many rows a part has."""
    world = ada.world
    ada.policy = world.policy(designs=["statistic"])
    ada.restart()
    ada.lifecycle._party = replace(ada.lifecycle._party, numbers=NUMBERS)
    spent, rows, sizes = [], [], []
    for held_back in (None, *PARTS):
        opened = about(world, held_back)
        assert charge_for(opened.query, 40) == charge_for(about(world, None).query, 40)
        envelope, cohort = ready(ada, opened.query)
        ada.upload(envelope, cohort)
        rows.append(cohort.open(world.roster)[0].rows)
        sizes.append(ada.hub.opened_receipt().ciphertexts)
        spent.append(ada.ledger.spent(RECORD).rho)
    assert rows == [40] * 3
    assert len(set(sizes)) == 1
    assert spent[0] > 0
    assert [after - before for before, after in zip([0, *spent], spent, strict=False)] == [spent[0]] * 3
