"""The accounting gives the figures that are stored, and so do its steps and its margins."""

import json
from pathlib import Path

import pytest

from tests.dpcore.accounting.figures import FILE, PARTS, figures

STORED = json.loads(Path(FILE).read_text())
# Libraries and processors differ in the last digits. A tiny number is a figure, too, so nothing absolute is added.
RELATIVE = 1e-6
# Those of what rounding adds are differences of numbers that are almost the same.
OF_DIFFERENCES = 3e-3


@pytest.mark.parametrize("part", PARTS)
def test_the_figures_are_those_that_are_stored(part):
    found, stored = figures(part), STORED[part]
    assert list(found) == list(stored)
    changed = {name: (found[name], stored[name]) for name in found if not alike(name, found[name], stored[name])}
    assert changed == {}


def alike(name: str, found: list[float], stored: list[float]) -> bool:
    relative = OF_DIFFERENCES if name.startswith("added ") else RELATIVE
    return len(found) == len(stored) and all(
        one == pytest.approx(other, rel=relative, abs=0) for one, other in zip(found, stored, strict=True)
    )
