"""`rado coordinator roster` installs a newer roster of the federation, and no other."""

from dataclasses import replace

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.membership import install_roster
from dpcore.errors import ConfigurationError
from radofed.provision import provision
from wire.envelopes import SigningKey
from wire.roster import Role


@pytest.fixture
def made(tmp_path):
    return provision(tmp_path / "f", federation="clinics", coordinator_address="localhost:1", parties=["north"])


@pytest.fixture
def config(made):
    return CoordinatorConfig.load(made.of(Role.COORDINATOR)[0].config)


def file_of(made, key=None, **changes):
    roster = replace(made.roster, **({"version": 2} | changes))
    file = made.directory / "new.signed"
    key = key or SigningKey.load(made.directory / "federation/federation.key", roster.federation)
    file.write_bytes(roster.sign(key).to_bytes())
    return file


def refused(config, file, match):
    before = config.roster.read_bytes()
    with pytest.raises(ConfigurationError, match=match):
        install_roster(config, file)
    assert config.roster.read_bytes() == before


def test_a_newer_roster_is_installed(made, config):
    file = file_of(made)
    assert install_roster(config, file).version == 2
    assert config.roster.read_bytes() == file.read_bytes()
    # Also where there is none yet.
    config.roster.unlink()
    assert install_roster(config, file).version == 2


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_roster_or_the_same_is_refused(made, config, version):
    install_roster(config, file_of(made))
    refused(config, file_of(made, version=version), "version 2 is there")


def test_a_roster_of_others_is_refused(made, config):
    refused(config, file_of(made, SigningKey.generate("clinics")), "not a roster of this federation key")
    refused(config, file_of(made, federation="banks"), "not a roster of 'clinics'")
    hub = tuple(replace(m, name="hub") if m.role is Role.COORDINATOR else m for m in made.roster.members)
    refused(config, file_of(made, members=hub), "with coordinator 'coordinator'")
    file = file_of(made)
    file.write_bytes(b"no roster")
    refused(config, file, "give|use|roster")
