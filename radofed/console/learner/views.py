"""All pages and actions of a learner's console."""

from pathlib import Path

from learner.config import LearnerConfig
from radobase.logs import quiet_grpc
from radofed.console.learner.evaluations import Evaluations
from radofed.console.learner.planning import Planning
from radofed.console.learner.queries import Following, Queries
from radofed.console.learner.releases import Releases
from radofed.console.learner.trainings import Trainings
from radofed.console.pages import Views

_START = ("plan", "queries", "releases", "models", "evaluations")
"""The pages of the navigation, each called as its path."""


def learner_views(config: Path) -> Views:
    """The views of the learner with this configuration file. It follows the queries that are open.

    Raises ConfigurationError.
    """
    quiet_grpc()
    loaded = LearnerConfig.load(config)
    following = Following(loaded)
    trainings = Trainings(config, loaded, following)
    evaluations = Evaluations(config, loaded, following)
    planning = Planning(config, loaded, following, trainings)
    queries, releases = Queries(loaded, following), Releases(config, loaded, trainings)
    following.resume()
    return Views(
        role="learner",
        member=loaded.name,
        federation=loaded.federation,
        navigation=tuple((name, name.capitalize()) for name in _START),
        pages={
            "plan": planning.page,
            "asking/{plan}": planning.confirmation,
            "training/{plan}": trainings.confirmation,
            "trainings/{training}": trainings.shown,
            "trainings/{training}/now": trainings.now,
            "evaluations": evaluations.all,
            "evaluating/{plan}": evaluations.confirmation,
            "evaluations/{evaluation}": evaluations.one,
            "evaluations/{evaluation}/now": evaluations.now,
            "evaluations/{evaluation}/file": evaluations.download,
            "queries": queries.history,
            "queries/{query}": queries.query,
            "queries/{query}/now": queries.now,
            "releases": releases.all,
            "releases/{release}": releases.one,
            "releases/{release}/report": releases.release_report,
            "models": releases.models,
            "models/{model}": releases.model,
            "models/{model}/file": releases.download,
            "models/{model}/report": releases.model_report,
            "models/{model}/shapes": releases.model_shapes,
        },
        actions={
            "plan": planning.act,
            "asking/{plan}": planning.ask,
            "asking/{plan}/would-accept": planning.would_accept,
            "training/{plan}": trainings.start,
            "training/{plan}/would-accept": trainings.would_accept,
            "trainings/{training}/stop": trainings.stop,
            "trainings/{training}/continue": trainings.go_on,
            "trainings/{training}/ask-again": trainings.ask_again,
            "trainings/{training}/reuse": trainings.reuse,
            "evaluations": evaluations.prepare,
            "evaluating/{plan}": evaluations.start,
            "evaluating/{plan}/would-accept": evaluations.would_accept,
            "evaluations/{evaluation}/stop": evaluations.stop,
            "evaluations/{evaluation}/continue": evaluations.go_on,
            "evaluations/{evaluation}/ask-again": evaluations.ask_again,
            "evaluations/{evaluation}/reuse": evaluations.reuse,
            "queries/{query}/follow": queries.follow,
            "queries/{query}/cancel": queries.cancel,
            "queries/{query}/retry": queries.retry,
            "releases/{release}": releases.train,
        },
    )
