"""The samples in deploy/samples load, and are what `rado provision init` writes for an example federation."""

import re
from pathlib import Path

import pytest

from coordinator.config import CoordinatorConfig
from learner.accepted_parties import AcceptedParties, parties_toml
from learner.config import LearnerConfig
from parties.config import PartyConfig
from parties.policy import Policy
from radofed.node_config import PolicyChoices, coordinator_toml, learner_toml, party_toml, policy_toml
from wire.envelopes import fingerprint

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"
FEDERATION, ADDRESS = "example", "rado.example.org:7443"


def example_fingerprint(name):
    return fingerprint(name.encode().ljust(32, b"\0"))


WRITTEN = {
    "coordinator.toml": coordinator_toml(FEDERATION, "coordinator", "0.0.0.0:7443"),
    "party.toml": party_toml(FEDERATION, "north", ADDRESS),
    "policy.toml": policy_toml(
        {"learner": example_fingerprint("learner")},
        {name: example_fingerprint(name) for name in ("south", "east", "west")},
        PolicyChoices(),
    ),
    "learner.toml": learner_toml(FEDERATION, "learner", ADDRESS),
    "parties.toml": parties_toml({name: example_fingerprint(name) for name in ("north", "south", "east", "west")}),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_samples_are_what_provisioning_writes(name):
    assert (SAMPLES / name).read_text() == WRITTEN[name]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("coordinator.toml", CoordinatorConfig),
        ("party.toml", PartyConfig),
        ("policy.toml", Policy),
        ("learner.toml", LearnerConfig),
        ("parties.toml", AcceptedParties),
    ],
)
def test_samples_load(name, model):
    model.load(SAMPLES / name)


def test_commented_settings_are_settings_too(tmp_path):
    """What a sample shows in a comment is accepted without the comment sign."""
    models = {"coordinator.toml": CoordinatorConfig, "party.toml": PartyConfig, "policy.toml": Policy}
    models["learner.toml"] = LearnerConfig
    for name, model in models.items():
        lines = (SAMPLES / name).read_text().splitlines()
        settings = [line.removeprefix("# ") if re.match(r"# (\w+ = |\[)", line) else line for line in lines]
        assert settings != lines
        (tmp_path / name).write_text("\n".join(settings))
        model.load(tmp_path / name)
