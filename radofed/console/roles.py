"""Which role a configuration file is of, and the views of that role."""

from pathlib import Path

from radofed.console.pages import Views
from radofed.node_config import role_of
from wire.roster import Role


def views_of(config: Path) -> Views:
    """The views of a node.

    Raises ConfigurationError if the file is no node's configuration.
    """
    # A role imports what another need not have installed.
    match role_of(config):
        case Role.PARTY:
            from radofed.console.party.views import party_views  # noqa: PLC0415

            return party_views(config)
        case Role.COORDINATOR:
            from radofed.console.coordinator import coordinator_views  # noqa: PLC0415

            return coordinator_views(config)
        case Role.LEARNER:
            from radofed.console.learner.views import learner_views  # noqa: PLC0415

            return learner_views(config)
