"""All pages and actions of a learner's console."""

from pathlib import Path

from learner.config import LearnerConfig
from radobase.logs import quiet_grpc
from radofed.console.learner.planning import Planning
from radofed.console.learner.queries import Following, Queries
from radofed.console.learner.releases import Releases
from radofed.console.learner.trainings import Trainings
from radofed.console.pages import Action, Page, Views


def learner_views(config: Path) -> Views:
    """The views of the learner with this configuration file. It follows the queries that are open.

    Raises ConfigurationError.
    """
    quiet_grpc()
    loaded = LearnerConfig.load(config)
    following = Following(loaded)
    trainings = Trainings(config, loaded, following)
    planning, queries, releases = (
        Planning(config, loaded, following, trainings),
        Queries(loaded, following),
        Releases(config, loaded, trainings),
    )
    following.resume()
    return Views(
        role="learner",
        member=loaded.name,
        federation=loaded.federation,
        navigation=(("plan", "Plan"), ("queries", "Queries"), ("releases", "Releases"), ("models", "Models")),
        pages=(
            Page("plan", planning.page),
            Page("asking/{plan}", planning.confirmation),
            Page("training/{plan}", trainings.confirmation),
            Page("trainings/{training}", trainings.training),
            Page("trainings/{training}/now", trainings.now),
            Page("queries", queries.history),
            Page("queries/{query}", queries.query),
            Page("queries/{query}/now", queries.now),
            Page("releases", releases.all),
            Page("releases/{release}", releases.one),
            Page("releases/{release}/report", releases.release_report),
            Page("models", releases.models),
            Page("models/{model}", releases.model),
            Page("models/{model}/file", releases.download),
            Page("models/{model}/report", releases.model_report),
            Page("models/{model}/shapes", releases.model_shapes),
        ),
        actions=(
            Action("plan", planning.act),
            Action("asking/{plan}", planning.ask),
            Action("asking/{plan}/would-accept", planning.would_accept),
            Action("training/{plan}", trainings.start),
            Action("training/{plan}/would-accept", trainings.would_accept),
            Action("trainings/{training}/stop", trainings.stop),
            Action("trainings/{training}/continue", trainings.go_on),
            Action("trainings/{training}/ask-again", trainings.ask_again),
            Action("trainings/{training}/reuse", trainings.reuse),
            Action("queries/{query}/follow", queries.follow),
            Action("queries/{query}/cancel", queries.cancel),
            Action("queries/{query}/retry", queries.retry),
            Action("releases/{release}", releases.train),
        ),
    )
