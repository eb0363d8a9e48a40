"""Terms of a report are explained where they occur, and only there."""

import pytest

from radobase.presentation.words import explained


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
