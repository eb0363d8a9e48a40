"""Every parser that a peer or a file reaches: for any input it raises only the project's own errors."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.table import all_targets

TARGETS = all_targets()
NAMES = sorted(TARGETS)


def fuzz_of(name: str):
    """The Hypothesis test of a target. `make fuzz` drives the same one by coverage."""
    target = TARGETS[name]

    @settings(
        max_examples=target.examples,
        deadline=None,
        database=None,
        # A failure is small already: its input is kept as it is.
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def fuzz(data: bytes) -> None:
        target.check(data)

    return fuzz


@pytest.mark.parametrize("name", NAMES)
def test_any_input_raises_only_our_own_errors(name):
    fuzz_of(name)()


@pytest.mark.parametrize("name", [name for name in NAMES if TARGETS[name].corpus])
def test_inputs_of_the_corpus(name):
    for path in TARGETS[name].corpus:
        TARGETS[name].check(path.read_bytes())
