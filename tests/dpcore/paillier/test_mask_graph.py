"""Graphs of masks: who shares masks with whom, what it takes to divide them, and what is learned then."""

import hashlib
import itertools
import random
from collections.abc import Iterable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.paillier.mask_graph import MaskGraph, is_complete
from dpcore.paillier.masks import PRIME, CohortAttempt, cohort_mask, tag_mask
from tests.dpcore.paillier.test_masks import DIGEST, QUERY_ID, chi_square_of_uniform

ATTEMPT = CohortAttempt(QUERY_ID, 1, DIGEST)
SHAPE, BITS = (100, 63), 40
MODULUS = np.uint64((1 << BITS) - 1)


def circle(size: int, neighbours: int) -> MaskGraph:
    return MaskGraph(tuple(f"p{place:04}" for place in range(size)), neighbours)


def parts(graph: MaskGraph, kept: Iterable[str]) -> list[set[str]]:
    """The connected components of the graph on `kept`, by search."""
    left, found = set(kept), []
    while left:
        part, waiting = set(), [left.pop()]
        while waiting:
            part.add(name := waiting.pop())
            near = left.intersection(graph.peers(name))
            left -= near
            waiting += near
        found.append(part)
    return found


def fewest_that_divide(graph: MaskGraph, kept: set[str]) -> int:
    """By trying all subsets."""
    for count in range(max(0, len(kept) - 1)):
        for gone in itertools.combinations(kept, count):
            if len(parts(graph, kept.difference(gone))) > 1:
                return count
    return max(0, len(kept) - 1)


def test_the_order_follows_from_the_digest_and_the_names_alone():
    names = [f"p{i}" for i in range(50)]
    graph = MaskGraph.of(names, DIGEST, 20)
    assert MaskGraph.of(reversed(names), DIGEST, 20).order == graph.order
    other = MaskGraph.of(names, hashlib.sha256(b"another cohort").digest(), 20)
    assert other.order != graph.order
    assert sorted(other.order) == sorted(names)


@pytest.mark.parametrize(("size", "neighbours"), [(23, 20), (60, 22), (21, 20)])
def test_each_member_shares_masks_with_as_many_others_and_they_with_it(size, neighbours):
    graph = circle(size, neighbours)
    for name in graph.order:
        peers = graph.peers(name)
        assert len(set(peers) - {name}) == len(peers) == min(neighbours, size - 1)
        assert all(name in graph.peers(peer) for peer in peers)
    assert graph.is_complete == (size == 21) == is_complete(size, neighbours)


def test_without_a_number_every_two_share_masks():
    graph = circle(7, 0)
    assert graph.is_complete
    assert set(graph.peers("p0003")) == set(graph.order) - {"p0003"}
    assert not graph.may_be_divided(graph.order, 6)
    assert MaskGraph((), 4).connectivity(()) == 0


@pytest.mark.parametrize("neighbours", [-2, 3])
def test_a_circle_has_an_even_number_of_neighbours(neighbours):
    with pytest.raises(ValueError, match="even"):
        circle(9, neighbours)


@pytest.mark.parametrize("neighbours", [2, 4])
def test_connectivity_is_that_of_a_search_over_all_subsets(neighbours):
    """Of every subset of a circle of eight."""
    graph = circle(8, neighbours)
    for inside in itertools.product((False, True), repeat=8):
        kept = set(itertools.compress(graph.order, inside))
        fewest = fewest_that_divide(graph, kept)
        assert graph.connectivity(kept) == fewest
        for leaving in range(len(kept)):
            divided = any(
                len(parts(graph, kept.difference(gone))) > 1
                for count in range(leaving + 1)
                for gone in itertools.combinations(kept, count)
            )
            assert graph.may_be_divided(kept, leaving) == divided


@pytest.mark.more
@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("neighbours", [2, 4, 6, 8])
def test_connectivity_of_every_subset_of_a_small_circle(size, neighbours):
    graph = circle(size, neighbours)
    for inside in itertools.product((False, True), repeat=size):
        kept = set(itertools.compress(graph.order, inside))
        assert graph.connectivity(kept) == fewest_that_divide(graph, kept)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(24, 200), st.integers(10, 14), st.integers(0, 60))
def test_with_more_neighbours_than_may_collude_and_are_strangers_no_order_is_divided(seed, size, reach, holes):
    """Claim 3: connectivity falls by one for each that is not accepted, at most."""
    graph, draw = circle(size, 2 * reach), random.Random(seed)
    kept = set(draw.sample(graph.order, max(1, size - holes)))
    holes = size - len(kept)
    assert graph.connectivity(kept) >= min(len(kept) - 1, 2 * reach - holes)
    for leaving in range(max(0, 2 * reach - holes)):
        assert not graph.may_be_divided(kept, leaving)
    assert graph.connectivity(graph.order) == min(size - 1, 2 * reach)
    if 2 * reach < size - 1:
        assert graph.may_be_divided(graph.order, 2 * reach)


# What a coalition sees: real masks, whose streams with its own members it takes away.


class Cohort:
    """Members with mask keys, and uploads of one number a slot."""

    def __init__(self, graph: MaskGraph) -> None:
        self.graph = graph
        self.keys = {name: X25519PrivateKey.generate() for name in graph.order}
        self.public = {name: key.public_key().public_bytes_raw() for name, key in self.keys.items()}
        self.values = {name: np.uint64(1000 + place) for place, name in enumerate(graph.order)}

    def mask(self, name: str, peers: Iterable[str]) -> np.ndarray:
        public = {peer: self.public[peer] for peer in peers}
        return cohort_mask(name, self.keys[name], public, ATTEMPT, shape=SHAPE, value_bits=BITS)

    def tag(self, name: str, peers: Iterable[str]) -> int:
        return tag_mask(name, self.keys[name], {peer: self.public[peer] for peer in peers}, ATTEMPT)

    def seen(self, part: Iterable[str], coalition: set[str]) -> np.ndarray:
        """The sum of the uploads of some members, without the masks that the coalition knows."""
        total = np.zeros(SHAPE, dtype=np.uint64)
        for name in part:
            peers = self.graph.peers(name)
            total += self.values[name] + self.mask(name, peers)
            total -= self.mask(name, coalition.intersection(peers))
        return total & MODULUS

    def seen_tag(self, part: Iterable[str], coalition: set[str]) -> int:
        shown = 0
        for name in part:
            peers = self.graph.peers(name)
            shown += self.tag(name, peers) - self.tag(name, coalition.intersection(peers))
        return shown % PRIME


def colluders(graph: MaskGraph, case: str) -> set[str]:
    """Members of a circle of 16 with 4 neighbours that divide it."""
    places = {
        "one party alone": [14, 15, 1, 2],
        "two arcs": [4, 5, 12, 13],
        "three parts": [0, 1, 6, 7, 11, 12],
    }[case]
    return {graph.order[place] for place in places}


@pytest.mark.parametrize("case", ["one party alone", "two arcs", "three parts"])
def test_a_coalition_that_divides_the_graph_opens_the_sum_of_each_part(case):
    """The attack, on slots and tags: so the check has to refuse as many as that."""
    graph = circle(16, 4)
    cohort, coalition = Cohort(graph), colluders(graph, case)
    honest = set(graph.order) - coalition
    found = parts(graph, honest)
    assert len(found) == {"one party alone": 2, "two arcs": 2, "three parts": 3}[case]
    for part in found:
        expected = sum(int(cohort.values[name]) for name in part)
        assert (cohort.seen(part, coalition) == expected).all()
        assert cohort.seen_tag(part, coalition) == 0
    assert graph.may_be_divided(graph.order, len(coalition))


def test_a_coalition_that_is_too_small_sees_the_sum_of_all_others_and_of_no_part():
    """Claim 1: with one colluder less everything but the whole honest sum is uniform, each honest part and multiple."""
    graph = circle(16, 4)
    cohort, coalition = Cohort(graph), colluders(graph, "two arcs")
    back = min(coalition)
    coalition.discard(back)
    assert not graph.may_be_divided(graph.order, len(coalition))
    honest = set(graph.order) - coalition
    assert len(parts(graph, honest)) == 1
    whole = cohort.seen(honest, coalition)
    assert (whole == sum(int(cohort.values[name]) for name in honest)).all()
    assert cohort.seen_tag(honest, coalition) == 0
    former = max(parts(graph, honest - {back}), key=len)
    for part in ([back], sorted(former), sorted(former | {back})[1:], sorted(honest)[:-1], [*sorted(honest), back]):
        assert abs(chi_square_of_uniform(cohort.seen(part, coalition), BITS)) < 6
        assert cohort.seen_tag(part, coalition) != 0


def test_masks_reach_every_vector_of_one_sum_and_no_other():
    """Claim 1, for all masks modulo 2, 3 and 4, on the honest members of a small circle."""
    graph = circle(6, 2)
    for gone, modulus in itertools.product(([], [0], [0, 2], [0, 3]), (2, 3, 4)):
        honest = [name for place, name in enumerate(graph.order) if place not in gone]
        edges = [(a, b) for a, b in itertools.combinations(honest, 2) if b in graph.peers(a)]
        reached = {(0,) * len(honest)}
        for a, b in edges:
            step = [(name == a) - (name == b) for name in honest]
            reached = {
                tuple((old + times * new) % modulus for old, new in zip(masks, step, strict=True))
                for masks in reached
                for times in range(modulus)
            }
        components = [[honest.index(name) for name in part] for part in parts(graph, honest)]
        wanted = {
            masks
            for masks in itertools.product(range(modulus), repeat=len(honest))
            if all(sum(masks[place] for place in part) % modulus == 0 for part in components)
        }
        assert reached == wanted


def test_a_thousand_members_are_checked_in_a_moment():
    graph = circle(1000, 40)
    kept = set(random.Random(3).sample(graph.order, 900))
    assert 0 < graph.connectivity(kept) <= 40
