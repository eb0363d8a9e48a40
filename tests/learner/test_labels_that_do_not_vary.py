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
VISITS = """
schema_version = 5
name = "insured"
texts = []
label = { type = "count", column = "visits", upper = 30 }
features = [{ name = "chronic", type = "boolean", true = ["true"], false = ["false"] }]
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


@pytest.mark.more
def test_a_weight_that_is_far_from_0_shows_that_the_label_varies():
    """Its variance, beside so high a bound, is within the noise of the first moments; the gradients tell it."""
    random = np.random.default_rng(8)
    chronic = random.random(12_000) < 0.2
    visits = random.poisson(np.exp(0.3 + 0.7 * chronic)).clip(0, 30)
    asked = radofed.simulated_federation(
        pd.DataFrame({"chronic": chronic, "visits": visits}),
        schema=Schema.from_toml(VISITS),
        parties=4,
        seed=1,
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asked.train("newton", epsilon=1)
    assert not any("varies" in str(each.message) for each in found)


def test_a_model_of_several_classes_that_states_its_errors_is_trained():
    """Its weights are a table, and no variance of its label can be hidden."""
    random = np.random.default_rng(1)
    ailment = random.choice(["cold", "flu", "sound"], 6000)
    fever = pd.Series(ailment).map({"cold": 37.2, "flu": 39.2, "sound": 36.6}) + random.normal(0, 0.5, 6000)
    table = pd.DataFrame({"fever": fever.round(1), "ailment": ailment})
    asked = radofed.simulated_federation(table, label="ailment", target="classes", parties=4, seed=1)
    model = asked.train("newton", epsilon=2, clip=2, rounds=4)
    assert model.covariance is not None
