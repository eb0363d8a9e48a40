"""A label that is the same in all rows gives weights of noise, and the model's training says so."""

import warnings

import numpy as np
import pandas as pd
import pytest

import radofed
from radofed import Schema, simulate_federation

TOML = """
schema_version = 5
name = "stays"
texts = ["nfc", "trim"]
[label]
type = "{kind}"
column = "days"
{lower}
upper = 10
[[features]]
name = "age"
type = "real"
lower = 18
upper = 100
"""


def trained(kind: str, days: np.ndarray) -> list[str]:
    """The warnings of a training over two parties."""
    age = np.random.default_rng(1).integers(20, 80, len(days))
    frame = pd.DataFrame({"age": age, "days": days})
    schema = Schema.from_toml(TOML.format(kind=kind, lower="lower = 0" if kind == "number" else ""))
    asked = simulate_federation({"north": frame[::2], "south": frame[1::2]}, schema=schema, seed=1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = asked.train("newton", epsilon=2, rounds=4)
    assert isinstance(model, radofed.Model)
    return [str(each.message) for each in found]


@pytest.mark.parametrize(("kind", "constant"), [("number", 5), ("count", 0)])
def test_a_constant_label_is_said_to_be_one_that_may_not_vary(kind, constant):
    assert any("the noise hides whether 'days' varies" in each for each in trained(kind, np.full(3000, constant)))
    varying = np.random.default_rng(2).poisson(3, 3000).clip(0, 10)
    assert not any("varies" in each for each in trained(kind, varying))
