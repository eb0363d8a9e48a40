"""Persons as the unit of privacy: what replacing one moves, for every kind, and what a contribution is."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.accounting.protection import Setting
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.frontend import x, y
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.kind import QueryLimits
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import CountedRelease, composed_cost, statement_for
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import PlainDesign
from dpcore.randomness.sources import SeededRandom
from dpcore.records import compiled, persons
from dpcore.records.clipping import Clip
from dpcore.records.coding import NUMBER, SIGNS, Coding, class_codes, event_time_codes
from dpcore.records.computation import Computation
from dpcore.records.features import Label, RealFeature
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.persons import PERSON_BITS, PERSON_WEIGHT, PersonRows, Persons
from dpcore.records.records import Records
from dpcore.records.schema import Schema

BITS, D, CLIP = 8, 3, Clip(Fraction(3, 2), True)
SCHEMA = Schema(
    name="persons",
    label=Label(column="y", positive=("1",)),
    features=(RealFeature(name="a", lower=-1.0, upper=1.0), RealFeature(name="b", lower=-1.0, upper=1.0)),
    bias=True,
)
KEY = RowKey(b"k" * 32, "clinics", "north", "data.csv")
ONE_PERSON = Persons()


def _theta(count: int) -> tuple[int, ...]:
    return tuple(range(-(count // 2) << THETA_BITS - 1, (count - count // 2) << THETA_BITS - 1, 1 << THETA_BITS - 1))


KINDS = {
    "moments": (MomentsQuery(CLIP, 40, 9, persons=ONE_PERSON), SIGNS),
    "moments of classes": (ClassMomentsQuery(CLIP, 40, 9, 3, persons=ONE_PERSON), class_codes(3)),
    "products of classes": (ClassMomentsQuery(CLIP, 40, 9, 3, True, persons=ONE_PERSON), class_codes(3)),
    "moments of a number": (NumberMomentsQuery(CLIP, 40, 9, persons=ONE_PERSON), NUMBER),
    "gradient": (GradientQuery("logistic", _theta(D), Fraction(1, 2), 9, persons=ONE_PERSON), SIGNS),
    "gradient of weighted classes": (
        replace(
            ClassGradientQuery("logistic", _theta(3 * D), Fraction(1, 2), 9, None, 3, persons=ONE_PERSON),
            class_weights=(2, 1, 7),
        ),
        class_codes(3),
    ),
    "gradient with class weights": (
        replace(GradientQuery("logistic", _theta(D), Fraction(1, 2), 9, persons=ONE_PERSON), class_weights=(1, 5)),
        SIGNS,
    ),
    "gradient of classes": (
        ClassGradientQuery("logistic", _theta(3 * D), Fraction(1, 2), 9, None, 3, persons=ONE_PERSON),
        class_codes(3),
    ),
    "gradient of counts": (
        NumberGradientQuery("poisson", _theta(D), Fraction(1, 2), 9, None, Coding("count", 30), persons=ONE_PERSON),
        Coding("count", 30),
    ),
    "gradient of times": (
        HazardGradientQuery("hazards", _theta(D + 2), Fraction(1, 2), 9, None, 2, 2, persons=ONE_PERSON),
        event_time_codes(2),
    ),
    "statistic": (
        StatisticQuery(
            tuple(x["a"] >= bound for bound in (-0.5, 0.0, 0.5)), SCHEMA, GaussianShares(9), persons=ONE_PERSON
        ),
        SIGNS,
    ),
    "histogram": (
        StatisticQuery(
            (x["a"] < -0.5, (x["a"] >= -0.5) & (x["a"] < 0.5), x["a"] >= 0.5),
            SCHEMA,
            LaplaceShares(Fraction(9), 2),
            persons=ONE_PERSON,
        ),
        SIGNS,
    ),
}


def drawn(rows: int, coding: Coding, seed: int, *, extreme: bool = False) -> Records:
    """Rows with any values; extreme: of one person, all alike and as large as they can be."""
    random = np.random.default_rng(seed)
    features = random.integers(-ONE, ONE, size=(rows, D), endpoint=True).astype(np.int32)
    if extreme:
        features[:] = np.where(random.random(D) < 0.5, ONE, -ONE)
    features[:, -1] = ONE
    if coding == SIGNS:
        labels = np.where(random.random(rows) < 0.5, 1, -1).astype(np.int8)
    elif coding.classes or coding.intervals:
        labels = random.integers(0, coding.classes or 2 * coding.intervals + 1, rows).astype(coding.dtype)
    else:
        labels = random.integers(0, 30 if coding.kind == "count" else ONE, rows).astype(np.int32)
    labels = np.full(rows, labels[0]) if extreme else labels
    usable = np.ones(rows, dtype=bool) if extreme else random.random(rows) > 0.1
    features[~usable], labels[~usable] = 0, 1
    if len(coding.shape(1)) > 1:
        labels = np.column_stack([labels, np.zeros((rows, coding.shape(1)[1] - 1), dtype=labels.dtype)])
    return Records(features, np.ascontiguousarray(labels), usable, coding=coding)


def joined(first: Records, second: Records) -> Records:
    arrays = (
        np.concatenate([getattr(first, name), getattr(second, name)]) for name in ("features", "labels", "usable")
    )
    return Records(*arrays, coding=first.coding)


def exact(kind, records: Records, ids) -> np.ndarray:
    """The contribution without noise."""
    numbers = RowNumbers(KEY, KEY.of_ids(ids))
    computation = Computation(SeededRandom(b"noise"), numbers=numbers)
    noise = kind.shares.draw(kind.length(D), SeededRandom(b"noise"))
    return kind.contribution(records, BITS, computation) - noise


def moved(kind, coding: Coding, seed: int) -> np.ndarray:
    """By how much a sum over persons moves if one with some rows is replaced by one with others."""
    random = np.random.default_rng(seed)
    others = drawn(12, coding, seed)
    ids = [f"p{one}" for one in random.integers(0, 4, 12)]
    sums = []
    for name in ("ann", "bob"):
        rows = int(random.choice([1, 2, 7, 300]))
        own = drawn(rows, coding, int(random.integers(1 << 30)), extreme=True)
        sums.append(exact(kind, joined(others, own), [*ids, *[name] * rows]))
    return sums[0] - sums[1]


def largest_share(kind, coding: Coding, draws: int = 25) -> float:
    """The largest move over what the protection counts: squared in L2, or in L1."""
    protection = kind.protection(Setting(D, BITS, 2))
    found = [moved(kind, coding, seed) for seed in range(draws)]
    if kind.is_pure:
        shares = (np.abs(each).max() / protection.largest for each in found)
        return max(*shares, *(float(np.abs(each).sum()) / protection.l1 for each in found))
    return max(float((each.astype(object) ** 2).sum()) / float(protection.squared) for each in found)


@pytest.mark.parametrize("name", KINDS)
def test_a_person_who_is_replaced_moves_a_sum_by_no_more_than_is_counted(name):
    share = largest_share(*KINDS[name])
    assert share <= 1
    # Some move it by much of that, so that the bound is of these sums.
    assert share > 0.2


@pytest.mark.parametrize("name", ["moments", "histogram", "gradient of counts"])
def test_the_bound_fails_without_what_limits_a_person(name, monkeypatch):
    kind, coding = KINDS[name]
    everything = lambda self, usable: usable * np.int64(PERSON_WEIGHT)  # noqa: E731
    monkeypatch.setattr(PersonRows, "weights", everything)
    if name.startswith("gradient"):
        assert largest_share(kind, coding, 12) <= 1, "the person's sum is clipped"

        def unclipped(vectors, _most, total):
            total += vectors.sum(axis=0)

        monkeypatch.setattr(compiled, "add_shortened", unclipped)
    assert largest_share(kind, coding, 12) > 1


@pytest.mark.parametrize("name", KINDS)
def test_with_one_row_each_persons_are_records(name):
    kind, coding = KINDS[name]
    records, of_records = drawn(50, coding, 3), kind.of_persons(None)
    found, sums = exact(kind, records, [f"p{place}" for place in range(50)]), of_records.sums(records, BITS)
    # Gradients are shortened as wholes, and those of records by their weights.
    assert found == pytest.approx(PERSON_WEIGHT * sums, abs=50 * 2 * PERSON_WEIGHT * (name.startswith("grad")) << BITS)
    decoded, plain = kind.decode(found, BITS), of_records.decode(sums, BITS)
    pairs = zip(decoded, plain, strict=True) if isinstance(decoded, tuple) else [(decoded, plain)]
    for one, other in pairs:
        assert one == pytest.approx(other, abs=0.05)


def test_a_person_s_rows_are_averaged():
    kind, coding = KINDS["statistic"]
    records = joined(drawn(4, coding, 1, extreme=True), drawn(12, coding, 4, extreme=True))
    found = kind.decode(exact(kind, records, ["a"] * 4 + ["b"] * 12), BITS)
    each = [
        kind.of_persons(None).decode(kind.of_persons(None).sums(part, BITS), BITS) / part.rows
        for part in (records.between(0, 4), records.between(4, 16))
    ]
    assert found == pytest.approx(sum(each), abs=0.02)


def test_a_person_at_k_parties_costs_k_times_the_noise():
    for name in ("moments", "gradient", "statistic"):
        kind, _ = KINDS[name]
        once, thrice = (kind.of_persons(Persons(k)).protection(Setting(D, BITS, 2)) for k in (1, 3))
        assert thrice.squared == 9 * once.squared
        assert thrice.squared_alone == 9 * once.squared_alone
    kind, _ = KINDS["histogram"]
    once, thrice = (kind.of_persons(Persons(k)).protection(Setting(D, BITS, 2)) for k in (1, 3))
    assert (thrice.l1, thrice.largest, thrice.l1_alone) == (3 * once.l1, 3 * once.largest, 3 * once.l1_alone)


def test_noise_that_is_calibrated_for_persons_costs_the_same_epsilon():
    setting, epsilon, delta = Setting(D, BITS, 2), Fraction(1), Fraction(1, 10**6)
    for name in ("moments", "gradient", "statistic"):
        kind, _ = KINDS[name]
        calibrated = kind.calibrated(setting, (), epsilon, delta)
        assert 0.98 < calibrated.protection(setting).cost([40] * 3, delta).epsilon_if_others_collude <= 1
        records = kind.of_persons(None).calibrated(setting, (), epsilon, delta)
        assert calibrated.share_sigma if name != "statistic" else calibrated.noise.share_sigma > 200
        assert calibrated.length(D) == records.length(D)


def test_sums_over_persons_fit_their_slots():
    for name, (kind, coding) in KINDS.items():
        most = kind.largest_sum(QueryLimits(13, 1, D), BITS)
        assert most >= PERSON_WEIGHT * kind.of_persons(None).largest_sum(QueryLimits(1, 1, D), 0), name
        records = drawn(13 * 20, coding, 8, extreme=True)
        assert np.abs(exact(kind, records, [f"p{place % 13}" for place in range(260)])).max() <= most, name


def test_class_weights_count_before_a_person_is_clipped_and_noise_grows_with_the_largest():
    kind, coding = KINDS["gradient with class weights"]
    plain, short = replace(kind, class_weights=()), replace(kind, clip=Fraction(1, 100))
    protections = [each.protection(Setting(D, BITS, 2)) for each in (kind, plain)]
    assert protections[0].squared == 25 * protections[1].squared
    assert kind.unit(BITS) * 5 == plain.unit(BITS) == kind.of_persons(None).unit(BITS) * 5 / PERSON_WEIGHT
    # Without clipping, a person of two rows of two classes adds the mean of their vectors, each by its class's weight.
    kind, plain = (replace(each, clip=Fraction(8)) for each in (kind, plain))
    rows = drawn(60, coding, 5)
    of_rows = replace(plain, persons=None)
    sums = [of_rows.decode(of_rows.sums(rows.only(rows.labels == code), BITS), BITS) for code in (-1, 1)]
    alone = kind.decode(exact(kind, rows, [f"p{place}" for place in range(60)]), BITS)
    assert np.abs(sums).max() > 1
    assert alone == pytest.approx(sums[0] / 5 + sums[1], abs=0.01)
    pair = rows.at(np.array([np.flatnonzero(rows.usable & (rows.labels == code))[0] for code in (-1, 1)]))
    both = kind.decode(exact(kind, pair, ["a", "a"]), BITS)
    assert both == pytest.approx(kind.decode(exact(kind, pair, ["a", "b"]), BITS) / 2, abs=0.01)
    # However short the clip, no person is longer than the protection counts.
    own = exact(short, drawn(300, coding, 6, extreme=True), ["a"] * 300).astype(object)
    assert 0.9 < 4 * int(own @ own) / short.protection(Setting(D, BITS, 2)).squared <= 1


@pytest.mark.parametrize("name", ["moments", "gradient"])
def test_rows_count_by_a_weight_or_as_rows_of_persons(name):
    kind, _ = KINDS[name]
    for make in (
        lambda: replace(kind, weighted=True),
        lambda: replace(kind, persons=None, weighted=True).of_persons(ONE_PERSON),
    ):
        with pytest.raises(PlanError, match="by a weight or as rows of persons, not by both"):
            make()


def test_what_protects_no_persons_says_so():
    with pytest.raises(PlanError, match="protects no persons"):
        RadosQuery(4, PlainDesign(())).of_persons(ONE_PERSON)
    kind, _ = KINDS["statistic"]
    with pytest.raises(PlanError, match="local answers protect each record"):
        StatisticQuery((y == 1,), SCHEMA, LocalResponse(Fraction(1)), persons=ONE_PERSON)
    with pytest.raises(ConfigurationError, match="no ids"):
        kind.contribution(drawn(4, SIGNS, 1), BITS, Computation(SeededRandom(b"a"), numbers=RowNumbers(KEY)))


def test_the_statement_says_whose_rows_are_protected():
    kind, _ = KINDS["moments"]
    setting, delta = Setting(D, BITS, 2), Fraction(1, 10**6)
    kind = kind.calibrated(setting, (), Fraction(1), delta)
    said = statement_for(kind, [40, 50, 60], delta, schema=SCHEMA, setting=setting)
    assert (said.unit, said.scope) == ("one person, with all rows at one party", "person")
    assert "how many rows a person has, and how many there are in all, is not released" in " ".join(said.assumptions)
    assert not any("a person with several rows is not covered" in text for text in said.assumptions)
    many = statement_for(kind.of_persons(Persons(2)), [40, 50, 60], delta, schema=SCHEMA, setting=setting)
    assert many.unit == "one person, with all rows at up to 2 parties"
    assert many.epsilon > said.epsilon
    assert "is known there" in " ".join(many.assumptions)


def test_releases_of_persons_and_of_records_compose_for_records_only():
    setting, delta = Setting(D, BITS, 2), Fraction(1, 10**6)
    kind, _ = KINDS["moments"]
    of_persons = kind.calibrated(setting, (), Fraction(1), delta)
    of_records = kind.of_persons(None).calibrated(setting, (), Fraction(1), delta)
    rows = {"north": 40, "south": 50, "west": 60}
    found = {
        name: composed_cost([CountedRelease(each, rows, SCHEMA, setting) for each in both], delta)
        for name, both in {"persons": [of_persons] * 2, "both": [of_persons, of_records]}.items()
    }
    assert found["persons"].scope == "person"
    assert found["both"].scope == "record"
    assert found["persons"].epsilon == pytest.approx(found["both"].epsilon, rel=0.01)


def test_persons_of_two_parts_are_counted_as_such():
    kind, _ = KINDS["gradient"]
    protection = kind.protection(Setting(D, BITS, 2))
    assert protection.of_presence().squared * 4 == protection.squared
    assert protection.squared == kind.of_persons(None).protection(Setting(D, BITS, 2)).squared << 2 * PERSON_BITS
    assert replace(kind, clip=Fraction(1)).protection(Setting(D, BITS, 2)).squared > protection.squared


def test_the_weight_is_what_the_protocol_says():
    assert persons.PERSON_WEIGHT == 256
