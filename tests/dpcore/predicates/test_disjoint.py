"""The sensitivity bound: never exceeded by any two records, and reached where it should be."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.predicates import disjoint
from dpcore.predicates import disjoint as facts_module
from dpcore.predicates.disjoint import Finder, Sensitivity, batch_sensitivity, exclude
from dpcore.predicates.evaluation import values
from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelIs,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.predicates.frontend import clip, x, y, z
from dpcore.records.records import Records
from tests.dpcore.predicates.predicate_cases import AGE, JOB, SCHEMA, encoded, predicates, random_records
from tests.examples import examples

BITS = 8
RECORDS = random_records(240, 5)


def moved(batch: list[Predicate], records: Records = RECORDS) -> tuple[Fraction, Fraction]:
    """The most that replacing one of the records by another changes the sums: in L1, and as a sum of squares."""
    each = np.unique(values(batch, SCHEMA, records, BITS), axis=0)
    l1 = squared = 0
    for record in each:
        change = np.abs(each - record)
        l1, squared = max(l1, int(change.sum(axis=1).max())), max(squared, int((change**2).sum(axis=1).max()))
    return Fraction(l1, 1 << BITS), Fraction(squared, 1 << 2 * BITS)


def exact(count: int) -> Sensitivity:
    return Sensitivity(l1=count, l2_squared=count)


# Bounds that are met, just missed, and mixed in kind, where mistakes about ends would show.
close = st.sampled_from([Fraction(20), Fraction(40), Fraction(40) + Fraction(1, 1 << 40), Fraction(60), Fraction(100)])
sides = st.builds(lambda kind, c, negated: Not(kind("age", c)) if negated else kind("age", c),
                  st.sampled_from([AtLeast, Above]), close, st.booleans())  # fmt: skip
directions = st.builds(
    lambda k, constant, negated: Not(NonNegative(Affine((("age", k), ("pay", -2 * k)), constant))) if negated
    else NonNegative(Affine((("age", k), ("pay", -2 * k)), constant)),
    st.sampled_from([-2, -1, 1, 3]), st.integers(-3, 3), st.booleans(),
)  # fmt: skip
# Some records are exactly on these ends: ages are multiples of 5, and age 50 is encoded as 0.
middles = st.sampled_from([z["age"] >= 0, z["age"] <= 0, z["age"] > 0, z["age"] < 0, 2 * z["age"] >= 0])
ramps = st.builds(
    lambda k, constant, scale: Clipped(Affine((("age", k), ("pay", -2 * k)), constant), scale),
    st.sampled_from([-2, -1, 1, 3]), st.integers(-3, 3), st.integers(1, 3),
)  # fmt: skip
facts = st.one_of(
    sides, directions, middles, ramps, ramps.map(Not),
    st.builds(LabelIs, st.booleans()), st.sampled_from([Flag("smoker"), Not(Flag("smoker")), Flag("old")]),
    st.builds(Equals, st.just("job"), st.sampled_from(JOB.values)).flatmap(lambda p: st.sampled_from([p, Not(p)])),
)  # fmt: skip
cells = st.lists(facts, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
complements = st.lists(facts, min_size=2, max_size=3).map(lambda parts: Not(Or(tuple(map(Not, parts)))))


either = st.lists(facts, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts)))


@given(st.lists(facts | cells | complements | either | predicates, min_size=1, max_size=10, unique=True))
@settings(max_examples=examples(40, 400), deadline=None)
def test_no_two_records_differ_by_more_than_the_bound(batch: list[Predicate]):
    bound = batch_sensitivity(batch)
    l1, squared = moved(batch)
    assert l1 <= bound.l1 <= len(batch)
    assert squared <= bound.l2_squared <= len(batch)
    # A record that leaves takes all of its values along.
    assert Fraction(int(values(batch, SCHEMA, RECORDS, BITS).sum(axis=1).max()), 1 << BITS) <= bound.alone <= bound.l1


@pytest.mark.more
@given(st.lists(facts | cells | complements | either, min_size=2, max_size=2, unique=True))
@settings(max_examples=300, deadline=None)
def test_predicates_that_exclude_are_never_both_non_zero(pair: list[Predicate]):
    finder = Finder()
    first, second = (finder.facts(predicate) for predicate in pair)
    if first is None or second is None or exclude(first, second):
        assert first is None or second is None or exclude(second, first)
        # Also near the bounds that almost coincide.
        for records in (RECORDS, ages([40.0, 40.0 + 2**-40, np.nextafter(40.0, 41), 39.9999999999, 20, 60, 100, 0])):
            assert not (values(pair, SCHEMA, records, 30) > 0).all(axis=1).any()


def ages(years: list[float]) -> Records:
    """Records that differ in age only, each with both labels."""
    features = random_records(1, 6).features.repeat(2 * len(years), axis=0)
    features[:, 0] = np.repeat(encoded(AGE, years), 2)
    labels = np.tile(np.array([1, -1], np.int8), len(years))
    return Records(features, labels, np.ones(len(labels), np.bool_))


AGES = ages([2.5 + 5 * i for i in range(20)])


def histogram(bins: int) -> list[Predicate]:
    width = Fraction(100, bins)
    return [(x["age"] >= i * width) & (x["age"] < (i + 1) * width) for i in range(bins)]


@pytest.mark.parametrize(
    "batch",
    [
        histogram(20),
        [cell & (y == label) for cell in histogram(20) for label in (1, -1)],
        [x["age"] < 20, (x["age"] >= 20) & (x["age"] < 50), x["age"] >= 50],
        [(x["age"] > 5 * i) & (x["age"] <= 5 * i + 5) for i in range(20)],
        [(x["age"] >= 0) & (x["age"] <= 5)] + [(x["age"] > 5 * i) & (x["age"] <= 5 * i + 5) for i in range(1, 20)],
        [(x["age"] >= 5 * i) & (x["age"] < 5 * i + 5) for i in range(19)] + [(x["age"] >= 95) & (x["age"] <= 100)],
        [(z["age"] >= i) & (z["age"] < i + 1) & (y == label) for i in (-1, 0) for label in (1, -1)],
        [z["age"] >= 0, 3 * z["age"] < 0, Constant(value=False)],
        [clip(z["age"]), clip(-2 * z["age"]), And((clip(z["age"]), z["age"] < 0))],
        [~clip(z["age"] + 1), clip(z["age"]), Not(Or((z["age"] >= 0, Flag("smoker"))))],
    ],
)
def test_a_wrong_bound_would_be_caught_on_histograms(batch: list[Predicate]):
    records = Records(
        np.concatenate([AGES.features, RECORDS.features]),
        np.concatenate([AGES.labels, RECORDS.labels]),
        np.concatenate([AGES.usable, RECORDS.usable]),
    )
    bound = batch_sensitivity(batch)
    l1, squared = moved(batch, records)
    # Within 1/2^BITS, because slopes reach no end exactly; l1 - 1 and l2_squared - 1 are exceeded.
    assert bound.l1 - 1 < l1 <= bound.l1
    assert bound.l2_squared - 1 < squared <= bound.l2_squared


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ([x["age"] >= 3], 1),
        ([x["age"] >= 3, y == 1], 2),
        ([x["age"] >= i for i in range(7)], 7),
        ([(x["job"] == value) & (y == label) for value in JOB.values for label in (1, -1)], 2),
        ([x["job"] == "clerk", x["job"] == "cook", (x["job"] != "clerk") & (x["job"] != "cook")], 2),
        ([(x["smoker"] == a) & (x["old"] == b) for a in (True, False) for b in (True, False)], 2),
        # Two histograms count 2 each; a predicate that excludes no other adds 1.
        ([*histogram(20), *((x["pay"] >= i) & (x["pay"] < i + 1) for i in range(5))], 4),
        ([*histogram(20), y == 1], 3),
        # Also small ones that share an axis, the label.
        (
            [cell & (y == label) for cell in (*histogram(2), x["smoker"], ~x["smoker"]) for label in (1, -1)],
            4,
        ),
        # Two that overlap all others count separately.
        (
            [
                (x["age"] >= low) & (x["age"] < high)
                for low, high in [(0, 90), (1, 91), (10, 20), (30, 40), (30, 41), (30, 60), (40, 60), (41, 60)]
            ],
            2 + 2 + 2 + 1,
        ),
        # A closed upper end and a closed lower end may be stored as the same value.
        ([x["age"] <= 20, x["age"] >= Fraction(201, 10), y == 1], 3),
        ([(x["age"] >= 10 * i) & (x["age"] <= 10 * i + 10) for i in range(10)], 10),
        # Forms are exact: z <= 0 and z > 0 exclude, z <= 0 and z >= 0 do not.
        ([-z["age"] >= 0, (z["age"] > 0) & (z["age"] < 1), 2 * z["age"] >= 2], 2),
        ([-z["age"] >= 0, (z["age"] >= 0) & (z["age"] < 1), 2 * z["age"] >= 2], 3),
        ([z["age"] <= 0, z["age"] >= 0, z["age"] + z["pay"] >= 0], 3),
        ([(z["age"] >= 0) & (z["age"] <= 0), y == 1], 2),
        # A disjunction proves nothing; its complement does.
        ([x["smoker"] | (y == 1), ~x["smoker"] | (y == 1), y == -1], 3),
        ([x["smoker"] & (y == 1), Not(x["smoker"] | x["old"]), Not(Or((~x["smoker"], Not(y == -1))))], 2),
        # Never more than the number of predicates, however they are written.
        ([Constant(value=True), Not(Constant(value=True))], 1),
        ([Constant(value=False), x["smoker"] & ~x["smoker"], (x["age"] < 3) & (x["age"] >= 3)], 1),
        ([(x["age"] <= 3) & (x["age"] >= 4), (x["job"] == "cook") & (x["job"] == "clerk"), y == 1], 2),
        # Each kind of end is compared with the kind that it excludes, also among others.
        ([x["age"] <= 50, (x["age"] > 50) & (x["age"] >= 60), y == 1], 3),
        ([x["age"] <= 50, (x["age"] > 50) & (x["age"] < 60), (x["age"] > 50) & (x["age"] >= 60)], 2),
    ],
)
def test_known_sensitivities(batch, count: int):
    assert batch_sensitivity(batch) == exact(count)


def test_dyadic_histograms_count_twice_a_level():
    levels = [(x["age"] >= Fraction(100 * i, 2**k)) & (x["age"] < Fraction(100 * (i + 1), 2**k))
              for k in range(9) for i in range(2**k)]  # fmt: skip
    # The level of one bin counts 1, and each of the eight others 2.
    assert batch_sensitivity(levels) == exact(1 + 2 * 8)


def leaves(depth: int, path: tuple[Predicate, ...], generator: random.Random) -> list[Predicate]:
    """The leaves of a random tree that splits on age, flags and jobs."""
    if depth == 0:
        return [And((Constant(value=True), *path))]
    question = generator.choice(
        [x["age"] >= generator.randrange(1, 100), x["age"] > generator.randrange(1, 100), x["job"] == "cook", ~x["old"]]
    )
    return [leaf for side in (question, Not(question)) for leaf in leaves(depth - 1, (*path, side), generator)]


@pytest.mark.parametrize("seed", range(5))
def test_the_leaves_of_a_tree_are_one_group(seed: int):
    assert batch_sensitivity(leaves(5, (), random.Random(seed))) == exact(2)


@pytest.mark.more
def test_large_histograms_compare_no_pairs(monkeypatch):
    monkeypatch.setattr(disjoint, "MOST_COMPARED", 0)
    assert batch_sensitivity([cell & (y == label) for cell in histogram(4096) for label in (1, -1)]) == exact(2)
    assert batch_sensitivity([x["age"] < 0, *histogram(500), x["age"] >= 100]) == exact(2)
    grid = [a & (x["pay"] >= i) & (x["pay"] < i + 1) for a in histogram(30) for i in range(30)]
    assert batch_sensitivity(grid) == exact(2)
    # Predicates that would need pairwise comparison then count 1 each.
    assert batch_sensitivity([x["job"] == "clerk", x["job"] == "cook", x["job"] != "clerk"]) == exact(3)


def hostile() -> list[Predicate]:
    """Flags of which each level separates one predicate, and intervals on many axes that are equal or all meet."""
    flags = [Flag(f"f{i}") for i in range(30)]
    alike = And(tuple(AtLeast(f"r{i}", Fraction(1)) for i in range(20)))
    peeled = [And((alike, *flags[:k], Not(flags[k]), *flags[k + 1 :])) for k in range(30)]
    rest = [And((alike, *flags, *(AtLeast(f"s{j}", Fraction(i)) for j in range(20)))) for i in range(100)]
    return [*peeled, *rest]


def test_facts_that_are_sorted_are_bounded(monkeypatch):
    sorted_facts = 0
    clusters, coloured = disjoint._clusters, disjoint._coloured

    def counted(ways):
        def way(found):
            nonlocal sorted_facts
            sorted_facts += len(found)
            return ways(found)

        return way

    monkeypatch.setattr(disjoint, "_clusters", counted(clusters))
    monkeypatch.setattr(disjoint, "_coloured", counted(coloured))
    assert batch_sensitivity(hostile()) == exact(2 + 99)
    unbounded, sorted_facts = sorted_facts, 0
    monkeypatch.setattr(disjoint, "MOST_SORTED", unbounded // 2)
    assert batch_sensitivity(hostile()).l1 <= 130
    assert 0 < sorted_facts <= unbounded // 2
    # An axis with equal facts at one level is not examined again at the next.
    monkeypatch.setattr(disjoint, "MOST_SORTED", 20_000)
    monkeypatch.setattr(disjoint, "MOST_COMPARED", 0)
    assert batch_sensitivity(hostile()) == exact(2 + 99)
    # If nothing may be sorted, the bound is still sound, and at most the number of predicates.
    monkeypatch.setattr(disjoint, "MOST_SORTED", 0)
    assert batch_sensitivity(histogram(20)) == exact(20)


@pytest.mark.parametrize("most", [0, 1, 30, 100, 1000])
def test_facts_that_are_combined_are_bounded(monkeypatch, most: int):
    monkeypatch.setattr(facts_module, "MOST_FOUND", most)
    finder = Finder()
    batch = histogram(50)
    found = [finder.facts(predicate) for predicate in batch]
    # Four for the two ends of a bin and as many for their conjunction; with fewer facts, more overlap.
    assert sum(len(facts) for facts in found if facts) <= most
    assert batch_sensitivity(batch).l1 >= 2
    assert (batch_sensitivity(batch) == exact(2)) == (most == 1000)
    assert finder.facts(Constant(value=False) & Flag("smoker")) in (None, {})


@pytest.mark.more
def test_facts_do_not_depend_on_which_parts_are_the_same_object(monkeypatch):
    def batch(*, shared: bool) -> list[Predicate]:
        def block() -> Predicate:
            return And(tuple(AtLeast(f"r{i}", Fraction(1)) for i in range(30)))

        one = block()
        return [And((one if shared else block(), Flag(f"f{i % 7}"), Not(Flag(f"f{i}")))) for i in range(40)]

    for most in (10, 100, 500, 1200, 10_000):
        monkeypatch.setattr(facts_module, "MOST_FOUND", most)
        finder, other = Finder(), Finder()
        found = [finder.facts(predicate) for predicate in batch(shared=True)]
        assert found == [other.facts(predicate) for predicate in batch(shared=False)]
        assert batch_sensitivity(batch(shared=True)) == batch_sensitivity(batch(shared=False))


def test_the_first_parts_of_a_long_conjunction_are_examined(monkeypatch):
    def with_place(place: int) -> list[Predicate]:
        parts = [Or((Flag(f"a{i}"), Flag(f"b{i}"))) for i in range(facts_module.MOST_LOOKED_AT)]
        return [And((*parts[:place], x["job"] == value, *parts[place:])) for value in ("clerk", "cook", "none")]

    assert batch_sensitivity(with_place(facts_module.MOST_LOOKED_AT - 1)) == exact(2)
    assert batch_sensitivity(with_place(facts_module.MOST_LOOKED_AT)) == exact(3)
    monkeypatch.setattr(facts_module, "MOST_FACTS", 3)
    cells = [
        And((Flag("a"), Flag("b"), Flag("c"), test)) for test in (Flag("smoker"), Not(Flag("smoker")), Not(Flag("c")))
    ]
    # The fourth fact of each is not kept, but the third is compared.
    first, second, third = (Finder().facts(cell) for cell in cells)
    assert len(first) == len(second) == 3
    assert third is None


def test_ends_are_in_the_order_of_their_bounds_however_close():
    largest = (1 << 63) - 1
    bounds = sorted(
        {Fraction(n + i, d - j) for n, d in ((largest // 3, largest), (1, largest), (largest - 9, largest), (0, 9))
         for i in range(4) for j in range(4)}
        | {Fraction(-largest), Fraction(largest)}
    )  # fmt: skip
    assert min(b - a for a, b in itertools.pairwise(bounds)) < Fraction(1, 1 << 120)
    for low, high in itertools.pairwise(bounds):
        assert batch_sensitivity([Not(AtLeast("age", low)), AtLeast("age", high), AtLeast("age", low)]).l1 == 3
        finder = Finder()
        below, above = finder.facts(Not(AtLeast("age", low))), finder.facts(AtLeast("age", high))
        upto, beyond = finder.facts(Not(AtLeast("age", high))), finder.facts(AtLeast("age", low))
        assert exclude(below, above)
        assert exclude(above, below)
        assert not exclude(upto, beyond)
        assert not exclude(beyond, upto)
        assert finder.facts(AtLeast("age", low) & Not(AtLeast("age", high))) is not None
        assert finder.facts(AtLeast("age", high) & Not(AtLeast("age", low))) is None
        assert exclude(below, beyond)
        assert finder.facts(AtLeast("age", low) & Not(AtLeast("age", low))) is None


@pytest.mark.more
def test_many_clusters_next_to_a_large_one_take_no_time():
    # Visiting each of 8,000 bins for each of as many groups would take minutes.
    bins = histogram(8000)
    others = [(x["age"] >= 100) & Or((Flag("smoker"), AtLeast("pay", Fraction(i)))) for i in range(8000)]
    assert batch_sensitivity([*bins, *others]) == exact(8001)


def test_equal_batches_are_not_compared_as_trees():
    def tower() -> Predicate:
        made: Predicate = Flag("smoker")
        for _ in range(31):
            made = And((made, made))
        return made

    # Comparing two that share no objects would take 2^31 steps.
    assert batch_sensitivity([tower()]) == batch_sensitivity([tower()]) == exact(1)
    batch = [tower(), Not(Flag("smoker"))]
    assert batch_sensitivity(batch) is batch_sensitivity(tuple(batch))


def test_comparisons_are_bounded(monkeypatch):
    tried = []

    def counted(first, second):
        tried.append(min(len(first), len(second)))
        return exclude(first, second)

    monkeypatch.setattr(disjoint, "exclude", counted)
    monkeypatch.setattr(disjoint, "MOST_COMPARED", 10_000)
    generator = random.Random(1)

    def overlapping(feature: str) -> Predicate:
        start = generator.randrange(50)
        return (x[feature] >= start) & (x[feature] < start + 50)

    # Each kind needs pairwise comparison: the bound admits that for one kind, not for all.
    batch = [overlapping(f"a{kind}") & overlapping(f"b{kind}") for kind in range(20) for _ in range(40)]
    assert batch_sensitivity(batch).l1 <= 800
    assert 2000 < sum(tried) <= 10_000


def test_sharing_does_not_make_grouping_exponential():
    tower: Predicate = Flag("smoker")
    for _ in range(30):
        tower = And((tower, tower))
    assert batch_sensitivity([tower, Not(Flag("smoker")), And((Not(Flag("smoker")), LabelIs(positive=True)))]) == exact(
        3
    )
    parts = And(tuple(Flag(f"f{i}") for i in range(400)))
    assert batch_sensitivity([And((parts, Flag(f"g{i}"))) for i in range(400)]) == exact(400)


def test_the_order_of_a_batch_affects_only_the_grouping():
    batch = [cell & (y == label) for cell in histogram(6) for label in (1, -1)]
    for order in itertools.islice(itertools.permutations(batch), 0, 5000, 500):
        assert batch_sensitivity(order) == exact(2)
