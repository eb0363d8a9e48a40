"""The console of a learner."""

from pathlib import Path

from learner.config import LearnerConfig
from radofed.console.pages import Answer, Page, Shown, Views, Visit


def learner_views(config: Path) -> Views:
    """The views of the learner with this configuration file. Raises ConfigurationError."""
    loaded = LearnerConfig.load(config)

    def status(_: Visit) -> Answer:
        return Shown("learner/status.html", "Status")

    return Views(
        role="learner",
        member=loaded.name,
        federation=loaded.federation,
        navigation=(("status", "Status"),),
        pages=(Page("status", status),),
    )
