"""Which role a configuration file is of, and the views of that role."""

from collections.abc import Mapping
from pathlib import Path

from dpcore.errors import ConfigurationError
from radofed.common.configuration import read_keys
from radofed.console.forms import CommandForm
from radofed.console.pages import Views

# A key that only this role's configuration has.
_ROLES = {"policy": "party", "roster": "coordinator", "paillier_key": "learner"}


def views_of(config: Path, forms: Mapping[str, CommandForm]) -> Views:
    """The views of a node. forms: of `rado plan` and `rado learner query`, by the names "plan" and "query".

    Raises ConfigurationError if the file is no node's configuration.
    """
    keys = read_keys(config)
    found = [role for key, role in _ROLES.items() if key in keys]
    # A role imports what another need not have installed.
    match found:
        case ["party"]:
            from radofed.console.party.views import party_views  # noqa: PLC0415

            return party_views(config)
        case ["coordinator"]:
            from radofed.console.coordinator import coordinator_views  # noqa: PLC0415

            return coordinator_views(config)
        case ["learner"]:
            from radofed.console.learner.views import learner_views  # noqa: PLC0415

            return learner_views(config, forms)
    raise ConfigurationError(f"{config}: no party.toml, coordinator.toml or learner.toml; give a node's configuration")
