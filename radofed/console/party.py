"""The console of a party."""

from pathlib import Path

from parties.config import PartyConfig
from radofed.common.local_status import NotRunningError, read_status
from radofed.console.pages import Answer, Page, Shown, Views, Visit


def party_views(config: Path) -> Views:
    """The views of the party with this configuration file. Raises ConfigurationError."""
    loaded = PartyConfig.load(config)

    def status(_: Visit) -> Answer:
        try:
            found, fault = read_status(loaded.state_directory), ""
        except NotRunningError as error:
            found, fault = None, str(error)
        return Shown("party/status.html", "Status", {"status": found, "fault": fault})

    return Views(
        role="party",
        member=loaded.name,
        federation=loaded.federation,
        navigation=(("status", "Status"),),
        pages=(Page("status", status),),
    )
