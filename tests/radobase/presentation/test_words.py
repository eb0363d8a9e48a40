"""Figures and terms in words."""

import pytest

from dpcore.accounting.odds import chance_after
from radobase.presentation.words import chances, counted, explained


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("1000 rados, design dp-feat for 'age'", ["a rado", "a design"]),
        ("the truncation of signatures", ["truncation"]),
        ("Moments, each record's clipped", ["moments", "clipped"]),
        ("made by radofed", []),
        ("sums of a glossy closs", []),
        ("", []),
    ],
)
def test_terms_of_a_text(text, terms):
    assert [term for term, _ in explained([text])] == terms


@pytest.mark.parametrize(
    ("count", "unit", "said"),
    [(0, "row", "0 rows"), (1, "row", "1 row"), (12_000, "row", "12,000 rows"), (2, "other query", "2 other queries")],
)
def test_a_count_has_its_unit(count, unit, said):
    assert counted(count, unit) == said


def test_chances_are_those_of_either_epsilon():
    found = list(chances(0.5, None, 1e-5))
    assert [before for before, _, _ in found] == ["1 of 100", "10 of 100", "50 of 100"]
    assert [after for _, after, _ in found] == [chance_after(b, 0.5, 1e-5).of_100() for b in (0.01, 0.1, 0.5)]
    assert {second for _, _, second in found} == {None}
    assert [second for _, _, second in chances(0.1, 0.5, 1e-5)] == [after for _, after, _ in found]
