"""The console of a coordinator."""

from pathlib import Path

from coordinator.config import CoordinatorConfig
from radofed.console.pages import Answer, Page, Shown, Views, Visit


def coordinator_views(config: Path) -> Views:
    """The views of the coordinator with this configuration file. Raises ConfigurationError."""
    loaded = CoordinatorConfig.load(config)

    def status(_: Visit) -> Answer:
        return Shown("coordinator/status.html", "Status")

    return Views(
        role="coordinator",
        member=loaded.name,
        federation=loaded.federation,
        navigation=(("status", "Status"),),
        pages=(Page("status", status),),
    )
