"""The largest rado norm against enumeration, the vertices of plane zonotopes, and the relaxation's guarantee."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ShapeError
from dpcore.research import largest_norm as module
from dpcore.research.largest_norm import largest_norm
from dpcore.research.signature_sets import SignatureSet, all_signatures, dp_feat_signatures, fixed_support_signatures
from tests.dpcore.rados.signature_enumeration import EVERY, SETS, data, enumerated


def sets(edges: np.ndarray) -> dict[str, SignatureSet]:
    rows = len(edges)
    return {
        "all": all_signatures(rows),
        "support": fixed_support_signatures([rows], [rows // 3]),
        "dp-feat of two parties": dp_feat_signatures(edges[:, 0] > 0, Fraction(3, 2), [rows // 2, rows - rows // 2]),
    }


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_norm_is_exact_for_few_rows_and_for_few_dimensions(name, d, monkeypatch):
    _, edges = data(4, d=d)
    largest = np.linalg.norm(enumerated(SETS[name]) @ edges, axis=1).max()
    assert largest_norm(edges, SETS[name]).is_exact
    assert largest_norm(edges, SETS[name]).lower == pytest.approx(largest, rel=1e-12)
    monkeypatch.setattr(module, "MOST_ENUMERATED", 0)
    assert largest_norm(edges, SETS[name]).is_exact
    assert largest_norm(edges, SETS[name]).lower == pytest.approx(largest, rel=1e-11)
    # The bracket holds too where directions are not divided, or the work runs out.
    rough = largest_norm(edges, SETS[name], most_work=1)
    assert rough.lower <= largest * (1 + 1e-12)
    assert largest <= rough.upper
    monkeypatch.setattr(module, "MOST_DIMENSIONS", 0)
    relaxed = largest_norm(edges, SETS[name])
    assert relaxed.lower <= largest * (1 + 1e-12)
    # The guarantee, over all signatures.
    assert largest <= relaxed.upper <= math.sqrt(math.pi / 2) * np.linalg.norm(EVERY @ edges, axis=1).max()


@pytest.mark.parametrize("centre", [0.0, 0.3])
def test_in_the_plane_it_is_that_of_the_zonotopes_vertices(centre):
    """In the plane the best selection changes only at the m angles where some product is 0."""
    edges = np.random.default_rng(5).normal(size=(300, 2)) + centre
    angles = np.sort((np.arctan2(edges[:, 1], edges[:, 0]) + math.pi / 2) % math.pi)
    between = (angles + np.append(angles[1:], angles[0] + math.pi)) / 2
    directions = np.column_stack([np.cos(between), np.sin(between)])
    selected = np.concatenate([directions, -directions]) @ edges.T > 0
    expected = np.linalg.norm(selected @ edges, axis=1).max()
    found = largest_norm(edges, all_signatures(300))
    assert found.is_exact
    assert found.lower == pytest.approx(expected, rel=1e-12)


@pytest.mark.variants(2)
@pytest.mark.parametrize("name", ["all", "support", "dp-feat of two parties"])
@pytest.mark.parametrize("d", [3, 4])
def test_the_bracket_closes_for_hundreds_of_rows(name, d):
    edges = np.random.default_rng(6).normal(size=(300, d)) + 0.1
    found = largest_norm(edges, sets(edges)[name])
    assert found.is_exact
    # No random signature of the set is longer, and the best of many is close.
    drawn = np.random.default_rng(7).normal(size=(2000, d)) @ edges.T
    best = np.array([sets(edges)[name].best_selection(products) for products in drawn])
    norms = np.linalg.norm(best @ edges, axis=1)
    assert 0.97 * found.lower <= norms.max() <= found.upper


def test_in_many_dimensions_the_relaxation_is_within_its_guarantee():
    edges = np.random.default_rng(8).normal(size=(200, 12))
    found = largest_norm(edges, all_signatures(200))
    assert found.lower < found.upper <= math.sqrt(math.pi / 2) * found.lower
    # Edges that span fewer dimensions are as few dimensions.
    flat = np.random.default_rng(9).normal(size=(100, 2)) @ np.random.default_rng(10).normal(size=(2, 12))
    assert largest_norm(flat, all_signatures(100)).is_exact
    assert largest_norm(np.zeros((20, 3)), all_signatures(20)).upper == 0


def test_what_is_refused():
    with pytest.raises(ShapeError):
        largest_norm(np.zeros((9, 2)), SETS["all"])
