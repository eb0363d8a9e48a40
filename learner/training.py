"""Training: makes a model from a release, or from answers to queries, with an estimator chosen by name.

Training on a release is post-processing and costs no privacy.
"""

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from dpcore.declared import values_of
from dpcore.errors import ConfigurationError
from dpcore.estimators.moments_discriminant import synthetic_rados as draw_synthetic
from dpcore.numbers.processors import one_blas_thread
from dpcore.rados.distribution import ClassMoments, NumberMoments
from dpcore.records.features import several_classes, two_classes
from dpcore.records.held_back import Part
from dpcore.records.schema import Schema
from learner.epoch_releases import EpochReleases
from learner.estimators import COUNT_WEIGHTS, FROM_RELEASES, class_of, make_estimator, refused_by_name
from learner.model import Model
from learner.release import Release, moments_of
from learner.requests import check_unweighted
from learner.uncertainty import MOST_COORDINATES
from learner.warm_start import epochs_of, load_start, started
from radobase.options import estimator_options, training_part
from radobase.printing import amount
from wire.envelopes import KEY_BYTES
from wire.query import Query
from wire.request_fields import AskedTerms, QueryTerms, TrainOptions
from wire.texts import is_purpose
from wire.training import LONGEST_OPTIONS, MOST_QUERIES, Training

if TYPE_CHECKING:
    from learner.answer_source import Answer
    from learner.budgeted_oracle import BudgetedOracle
    from learner.federation import Federation

CERTAIN = 3.0
"""A class whose rows are fewer than so many standard deviations of the noise may have none."""
_FAR = 5.0
"""Standard errors. If 100 weights are 0, one of them is so far from it in one model of 17,000."""
_DOMAIN = b"rado.v1/releases\0"


def _fit(estimator: Any, method: str, what: str, estimator_name: str) -> Any:
    found = getattr(estimator, method, None)
    if found is None:
        others = ", ".join(name for name in FROM_RELEASES if hasattr(class_of(name), method))
        drawn = ", or draw rados from them with synthetic_rados=1000" if what == "moments" else ""
        raise ConfigurationError(f"{estimator_name} does not learn from {what}; choose one of {others}{drawn}")
    return found


Sample: TypeAlias = Release | EpochReleases
"""What training without queries learns from."""


def _synthetic(release: Sample, count: int) -> Any:
    from dpcore.estimators.base import RadoSample  # noqa: PLC0415  (scikit-learn takes a second)

    two_classes(release.schema.label, "a draw of rados")
    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        raise ConfigurationError(f"synthetic_rados is {count!r}; give a number of at least 2")
    drawn = draw_synthetic(release.moments, count, np.random.default_rng())
    return RadoSample(drawn, release.rows, bias=release.bias)


def train(release: Sample, estimator_name: str, *, synthetic_rados: int | None = None, **options: Any) -> Model:
    """The model that an estimator learns from a release. Arguments and errors as of `fitted`."""
    estimator = fitted(release, estimator_name, synthetic_rados=synthetic_rados, **options)
    return model_of(estimator, release, estimator_name)


def learns(estimator_name: str, schema: Schema) -> bool:
    """Whether the estimator learns the schema's label."""
    return refused_by_name(estimator_name, schema.label) is None


def check_learns(estimator_name: str, schema: Schema) -> None:
    """Raise ConfigurationError, before anything is asked, if the estimator does not learn the schema's label."""
    if (sentence := refused_by_name(estimator_name, schema.label)) is not None:
        raise ConfigurationError(sentence)
    if estimator_name not in COUNT_WEIGHTS:
        check_unweighted(schema, f"{estimator_name}, which asks statistics,")


def model_of(estimator: Any, release: Sample, estimator_name: str) -> Model:
    """The model of an estimator that was fitted on this release, or on these."""
    each = release.releases if isinstance(release, EpochReleases) else (release,)
    return Model(
        estimator.theta_,
        release.schema,
        estimator_name,
        digest_of_releases([one.digest for one in each]),
        release.statement,
        held_back_from([one.query for one in each]),
        release.query.feature_map,
        **_covariances(estimator, release, estimator_name),
        epochs=epochs_of([one.query for one in each]),
    )


def _covariances(estimator: Any, release: Sample | None = None, estimator_name: str = "") -> dict[str, Any]:
    """What is known of the weights' errors, unless it is too large to be kept. release: of moments of a number."""
    covariance, sampling = (getattr(estimator, name, None) for name in ("covariance_", "sampling_"))
    if release is not None and estimator_name == "linear" and release.bias and release.query.feature_map is None:
        from dpcore.estimators.errors_of_least_squares import errors_of_least_squares  # noqa: PLC0415  (SciPy)

        moments = cast("NumberMoments", release.moments)
        found = errors_of_least_squares(estimator.theta_, moments, estimator.residual_variance_, release.schema)
        covariance, sampling = found.covariance, found.sampling
    if covariance is None or len(covariance) > MOST_COORDINATES:
        return {}
    return {"covariance": covariance, "sampling": sampling}


def held_back_from(queries: Sequence[Query]) -> Fraction | None:
    """The share of rows that all these signed queries left out; None if there is no such share."""
    # Pieces of one part leave out what the part does.
    parts = {None if query.held_back is None else (query.held_back.share, query.held_back.part) for query in queries}
    (part,) = parts if len(parts) == 1 else [None]
    share, is_training = (part[0], part[1] is Part.TRAINING) if part is not None else (Fraction(0), False)
    return share if is_training and share else None


def fitted(release: Sample, estimator_name: str, *, synthetic_rados: int | None = None, **options: Any) -> Any:
    """An estimator that is fitted on a release, or on those of several epochs, with its training report.

    estimator_name: a key of learner.estimators.FROM_RELEASES. synthetic_rados: for a release of moments, the number of
    rados to draw with those moments for an estimator that learns from rados; each call draws new ones. options:
    parameters of the estimator.

    Raises:
        ConfigurationError: an option is unknown or out of range, or the estimator cannot learn from such a release.
        ShapeError: the release has fewer than two rados.
    """
    check_learns(estimator_name, release.schema)
    estimator = make_estimator(estimator_name, **options)
    learned = release.query.kind.learned_as
    if learned is None:
        raise ConfigurationError(
            f"a release of {release.contents} is a single answer to an estimator that sends queries; train on rados or "
            "moments"
        )
    if learned == "rados":
        if synthetic_rados is not None:
            raise ConfigurationError("this release contains rados; leave synthetic_rados out")
        sample = release.sample if isinstance(release, EpochReleases) else release
        _fit(estimator, "fit_release", "rados", estimator_name)(sample)
    elif synthetic_rados is None:
        _fit(estimator, "fit_moments", "moments", estimator_name)(release.moments)
    else:
        _fit(estimator, "fit_release", "rados", estimator_name)(_synthetic(release, synthetic_rados))
    return estimator


def model_of_answers(
    estimator: Any, oracle: "BudgetedOracle", estimator_name: str, start: Model | None = None
) -> Model:
    """The model of an estimator that queried this oracle, with the statement of the composition of all answers.

    start: the model that it started from, whose releases the statement then covers too. Raises ConfigurationError if
    nothing was answered, so that there is no release to learn from.
    """
    statement, left_out = oracle.statement(), held_back_from([answer.query for answer in oracle.answers])
    feature_map = getattr(estimator, "feature_map_", None)
    model = Model(
        estimator.theta_,
        oracle.schema,
        estimator_name,
        digest_of(oracle),
        statement,
        left_out,
        feature_map,
        **_covariances(estimator),
        epochs=epochs_of([answer.query for answer in oracle.answers]),
        log_hazards=getattr(estimator, "log_hazards_", None),
        class_weights=getattr(estimator, "class_weights_", ()),
    )
    return model if start is None else started(model, start)


def warning_of(estimator: Any, answers: "Sequence[Answer] | Sample") -> str | None:
    """What to know of a model: the estimator's own warning, and what of the label the noise hides.

    answers: what it was trained on, asked or released.
    """
    found = [warning] if (warning := getattr(estimator, "warning_", None)) else []
    moments = _first_moments(answers)
    if moments is not None:
        hidden = _hidden_variance(*moments)
        if hidden is not None and _shows_a_weight(estimator):
            hidden = None
        found += filter(None, [_hidden_classes(*moments), hidden])
    return "; ".join(found) or None


def _first_moments(answers: "Sequence[Answer] | Sample") -> tuple[Schema, Any] | None:
    """The first moments that were asked for or released, and their schema."""
    for one in [answers] if isinstance(answers, Sample) else answers:
        if one.query.kind.learned_as == "moments":
            return one.query.schema, one.moments if isinstance(one, Sample) else moments_of(one)
    return None


def _hidden_classes(schema: Schema, moments: Any) -> str | None:
    """Which classes of several may have no rows."""
    if not isinstance(moments, ClassMoments):
        return None
    label = several_classes(schema.label, "a sum for each class")
    width = CERTAIN * moments.sum_noise
    hidden = [
        f"{name!r} at most about {min(math.ceil(max(size, 0.0) + width), moments.rows)}"
        for name, size in zip(label.values, moments.class_sums[:, -1].tolist(), strict=True)
        if size < max(1.0, width)
    ]
    if not hidden:
        return None
    return (
        f"the noise hides how many of {moments.rows} rows some classes have, and whether they have any: "
        f"{', '.join(hidden)}. The model says little about them"
    )


def _shows_a_weight(estimator: Any) -> bool:
    """Whether a weight of one score is far from 0: gradients may tell more of a label than the first moments do."""
    covariance = getattr(estimator, "covariance_", None)
    if covariance is None:
        return False
    errors = np.sqrt(np.diag(covariance))[:-1]
    return bool((np.abs(estimator.theta_[:-1]) > _FAR * errors).any())


def _hidden_variance(schema: Schema, moments: Any) -> str | None:
    """Whether a number or a count may be the same in all rows."""
    if not (isinstance(moments, NumberMoments) and schema.label.coding.is_measured and schema.bias):
        return None
    if moments.shows_variance:
        return None
    return (
        f"the noise hides whether {schema.label.column!r} varies, so the model's weights may be nothing but noise: "
        "check that it is not the same in all rows, or ask with a larger epsilon"
    )


def digest_of(oracle: "BudgetedOracle") -> bytes:
    """32 bytes that identify the answers: a single answer's digest, or SHA-256 over their digests in order."""
    return digest_of_releases([answer.digest for answer in oracle.answers])


def digest_of_releases(digests: Sequence[bytes]) -> bytes:
    """32 bytes that identify releases, from the digests of one or more in the order of asking."""
    return digests[0] if len(digests) == 1 else hashlib.sha256(_DOMAIN + b"".join(digests)).digest()


@dataclass(frozen=True)
class Trained:
    """What a training ends with."""

    model: Model
    estimator: Any
    """Fitted."""
    oracle: "BudgetedOracle"
    """With the answers, and the cost of their composition."""


@dataclass(frozen=True)
class AskedTraining:
    """A training that asks parties. epsilon, delta: of all its queries. terms: options of each of them."""

    name: str
    estimator: Any
    schema: Schema
    epsilon: Fraction
    delta: Fraction
    terms: Mapping[str, Any]
    adaptive: int | None = None
    """As of `learner.federation.Federation.within`."""
    start: Model | None = None
    """The model that it starts from."""

    @classmethod
    def of(cls, name: str, options: TrainOptions, schema: Schema) -> "AskedTraining":
        """The training with the estimator `name`, a key of learner.estimators.BY_QUERIES.

        Raises ConfigurationError or PlanError, and as `learner.warm_start.load_start`.
        """
        check_learns(name, schema)
        chosen = estimator_options(options.option, rounds=options.rounds, class_weight=options.class_weight)
        terms = {**values_of(options, AskedTerms), "held_back": training_part(options.hold_back)}
        estimator, budget, start = make_estimator(name, **chosen), options.budget(name), None
        if options.start_from is not None:
            start = load_start(options.start_from, name, schema, options.hold_back, options.delta)
        return cls(name, estimator, schema, *budget, terms, options.adaptive, start)

    def few_coefficients(self, federation: "Federation") -> str | None:
        """The warning, before anything is asked, that most coefficients will not be measurable, and what would help.

        None of one training in a series, which may be about a piece of the rows.
        """
        from learner.expected_coefficients import few_coefficients  # noqa: PLC0415  (scikit-learn takes a second)

        if self.adaptive is not None:
            return None
        rows = federation.within(self.epsilon, self.delta).rows
        return few_coefficients(self.name, self.estimator, self.schema, rows, self.epsilon, self.delta)

    def before_asking(self, parties: int) -> str:
        """What it asks of so many parties, and what all answers cost at most, a sentence without its full stop."""
        rounds = int(getattr(self.estimator, "rounds", 0) or 0)
        times = f" at most {amount(rounds, 'time')}" if rounds else ""
        budget = f"epsilon {float(self.epsilon):g} at delta {float(self.delta):g} under collusion"
        asks = f"a training of {self.name} asks {amount(parties, 'party')}{times}"
        return f"{asks}; in total, at most {budget}, with one attempt of each"

    def run(self, federation: "Federation") -> Trained:
        """Ask everything, and make the model. Once only. Raises what the estimator and the federation raise.

        federation: with these terms.
        """
        federation = federation.announcing(self._announced(federation))
        oracle = federation.within(self.epsilon, self.delta, self.adaptive)
        # Estimators compute with matrices so small that the threads of BLAS, which spin, take far longer than one.
        with one_blas_thread():
            self.estimator.fit_queries(oracle, **({} if self.start is None else {"start": self.start.theta}))
        return Trained(model_of_answers(self.estimator, oracle, self.name, self.start), self.estimator, oracle)

    def _announced(self, federation: "Federation") -> Training:
        """The terms that every query of this training states; those of an earlier run that is continued."""
        terms, rounds, now = federation.terms, int(getattr(self.estimator, "rounds", 0) or 0), int(time.time())
        attempts = int(terms.get("attempts", QueryTerms.attempts))
        phases = ("answer_within_s", "prepare_within_s", "upload_within_s")
        each_s = sum(int(terms.get(name, getattr(QueryTerms, name))) for name in phases)
        lasts_s = min(max(_SHORTEST_TRAINING_S, each_s * max(rounds, 1)), _LONGEST_TRAINING_S)
        found = Training(
            name=os.urandom(KEY_BYTES),
            estimator=self.name,
            options=_options_words(self.estimator),
            schema_digest=self.schema.unweighted.digest,
            epsilon=self.epsilon,
            delta=self.delta,
            queries=min(rounds, MOST_QUERIES),
            max_attempts=attempts,
            begins_unix_s=now,
            ends_unix_s=now + lasts_s,
        )
        earlier: Training | None = getattr(federation.source, "training", None)
        if earlier is None or earlier.ends_unix_s <= now:
            return found
        continued = replace(
            found, name=earlier.name, begins_unix_s=earlier.begins_unix_s, ends_unix_s=earlier.ends_unix_s
        )
        return earlier if continued == earlier else found


_DAY_S = 24 * 3600
_SHORTEST_TRAINING_S, _LONGEST_TRAINING_S = 7 * _DAY_S, 90 * _DAY_S
"""How long a training may take, by what it announces."""


def _options_words(estimator: Any) -> str:
    """The options of an estimator that are not the usual ones."""
    usual = type(estimator)().get_params(deep=False)
    given = {name: value for name, value in estimator.get_params(deep=False).items() if value != usual.get(name)}
    words = ", ".join(f"{name}={value}" for name, value in sorted(given.items()))
    printable = "".join(letter for letter in words if letter == " " or is_purpose(letter)).strip()
    return printable if len(printable) <= LONGEST_OPTIONS else f"{printable[: LONGEST_OPTIONS - 4]} ..."
