"""Which role a configuration file is of, and the file read as that role's."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dpcore.errors import ConfigurationError
from radobase.configuration import read_keys
from wire.roster import Role

# ruff: noqa: PLC0415  (each role's configuration is imported where a file is of that role)

if TYPE_CHECKING:
    from coordinator.config import CoordinatorConfig
    from learner.config import LearnerConfig
    from parties.config import PartyConfig

NodeConfig: TypeAlias = "PartyConfig | CoordinatorConfig | LearnerConfig"

# A key that only this role's configuration has.
_ROLES = {"policy": Role.PARTY, "roster": Role.COORDINATOR, "paillier_key": Role.LEARNER}


def role_of(config: Path) -> Role:
    """The role whose configuration this is. Raises ConfigurationError if it is no node's, or cannot be read."""
    keys = read_keys(config)
    found = [role for key, role in _ROLES.items() if key in keys]
    if len(found) != 1:
        raise ConfigurationError(
            f"{config}: no party.toml, coordinator.toml or learner.toml; give a node's configuration"
        )
    return found[0]


def load_node_config(config: Path) -> NodeConfig:
    """Read a node's configuration. Raises ConfigurationError if it is none."""
    match role_of(config):
        case Role.PARTY:
            from parties.config import PartyConfig

            return PartyConfig.load(config)
        case Role.COORDINATOR:
            from coordinator.config import CoordinatorConfig

            return CoordinatorConfig.load(config)
        case Role.LEARNER:
            from learner.config import LearnerConfig

            return LearnerConfig.load(config)
