"""What a request has: the one declaration of its fields, in groups.

The requests (`learner.requests`), the commands, the console's forms, plans and simulations have these fields, with
these defaults and bounds. Imports nothing that computes, so that help is fast.
"""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from dpcore.declared import Declared, Option, names_of, values_of
from dpcore.errors import ConfigurationError
from wire.design_options import AUTO, DESIGNS, OPTIONS, USUAL_DESIGN
from wire.texts import EPOCH_RULE, MAX_PURPOSE, PURPOSE_RULE, is_epoch, is_purpose

USUAL_DELTA = Fraction(1, 1_000_000)
USUAL_RADOS = 1000
"""Nock, Patrini and Friedman (ICML 2015), section 4, use n = min(1000, m / 2)."""

# Fraction bits of kinds with noise: the granularity of the noise. Rados without noise choose by their number.
EDGE_FRACTION_BITS = 16
MOMENT_FRACTION_BITS = 10
GRADIENT_FRACTION_BITS = 12
HAZARD_FRACTION_BITS = 8
VALUE_FRACTION_BITS = 10
COUNT_FRACTION_BITS = 6

KEY_BITS = 3072
LEAST_KEY_BITS, MOST_KEY_BITS = 2048, 4096

DELTA = Option("The delta of epsilon.", above=0, below=1)
DELTA_OR_ZERO = Option("The delta of epsilon; 0 allows Laplace noise only.", at_least=0, below=1)
CONFIDENCE = Option("Simultaneous confidence of all intervals and tolerances.", above=0, below=1)
ADAPTIVE = Option(
    "K: the most statistic questions if earlier answers may choose later ones, those that were answered before "
    "included. Tolerances then hold for new rows all the same, for all K together.",
    default="the statistics were chosen without any answer about these rows",
    at_least=2,
)
SPLIT_ADAPTIVE = Option(
    "K: the most questions if earlier answers may choose later ones. Each is about a piece of the rows, one K-th, and "
    "intervals hold for new rows all the same, for all K together.",
    default="chosen without any answer about these rows",
    at_least=2,
)
MAP_FILE = Option(
    "moments, gaussian, fixed-support with --epsilon: a feature map in the columns' units, TOML or JSON; records are "
    "mapped before they are clipped.",
    flag="--map",
    unit="file",
)
HOLD_BACK = Option(
    "Share of its rows that each party holds back, by its own key. Only the others are asked about, and an evaluation "
    "asks about those that were held back.",
    above=0,
)
LABEL = Option("The label that is asked about, by its name in the schema.", default="the schema's only one")
ESTIMATOR_OPTION = Option("An option of the estimator, NAME=VALUE, such as n_rounds=500; repeatable.")
ROUNDS = Option("Number of rounds, if the estimator has them.", default="the estimator's")
CLASS_WEIGHT = Option(
    "newton, additive: how many times a record of a class counts, such as positive=5; several with commas. balanced: "
    "all classes count as much, by the counts of the training's first answer."
)
FEWEST_NEIGHBOURS = 20
"""Others with whom a party shares masks, if not with all: fewer would save little."""
LARGEST_COMPLETE = 40
"""Of so many parties every two share masks, unless another number is asked for."""
MASK_NEIGHBOURS = Option(
    f"With how many others each party shares masks, an even number from {FEWEST_NEIGHBOURS} on; complete: with all.",
    default=f"complete for up to {LARGEST_COMPLETE} parties; of more as many as the number that may collude requires, "
    f"at least {FEWEST_NEIGHBOURS}",
)
MAY_VANISH = Option(
    "How many of the parties that accept may vanish before they have uploaded: the answer is then of the others, and "
    "the noise always that of the smallest cohort.",
    default="0: all have to upload",
    at_least=0,
)
LOCAL = Option(
    "Each party flips its records' answers at random before it sums them: it needs to trust no other party, and the "
    "error grows with the root of the rows."
)
NOISE_RATE = Option("Known rate of flipped labels; estimates are corrected for it.", at_least=0)
KEY_SIZE = Option("Size of the Paillier modulus.", unit="bits", at_least=LEAST_KEY_BITS, at_most=MOST_KEY_BITS)


Source = Literal["boolean", "numeric", "category"]
Split = Literal["local", "exact"]

SPLIT = Option("local: each party truncates its own count; exact: a coordinator divides the pool's, in simulation.")


Unit = Literal["record", "person"]
"""Of privacy: what neighbouring data sets differ in."""

CohortNoise = Literal["answering", "smallest"]
"""Whose noise a total has."""


@dataclass(frozen=True, kw_only=True)
class UnitFields(Declared):
    """What the unit of privacy is."""

    unit: Annotated[
        Unit,
        Option(
            "What is protected: record, one row; or person, with all rows of one id (id_column) at a party. A person's "
            "rows count together as much as one record."
        ),
    ] = "record"
    persons_may_repeat: Annotated[
        int | None,
        Option("With --unit person: at how many parties a person may have rows.", default="1", at_least=1),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.persons_may_repeat is not None and self.unit != "person":
            raise ConfigurationError("persons_may_repeat is about persons: give --unit person, or leave it out")

    @property
    def noun(self) -> str:
        """What parties count."""
        return "person" if self.unit == "person" else "row"


_NEIGHBOURS = re.compile(r"[0-9]{1,4}[02468]")


def mask_neighbours(given: str | int | None) -> int | None:
    """The number that is asked for; 0 for all others, None for the default. Raises ConfigurationError."""
    if given is None:
        return None
    if given == "complete":
        return 0
    text = str(given)
    if not _NEIGHBOURS.fullmatch(text) or int(text) < FEWEST_NEIGHBOURS:
        raise ConfigurationError(
            f"mask_neighbours {given!r}: give an even number, at least {FEWEST_NEIGHBOURS}, or complete"
        )
    return int(text)


@dataclass(frozen=True, kw_only=True)
class AskedTerms(UnitFields):
    """What holds for each query of a command that asks parties."""

    answer_within_s: Annotated[
        int, Option("Time for parties, and for people who decide there, to answer.", unit="seconds", at_least=1)
    ] = 600
    answer_within: Annotated[
        str | None,
        Option(
            "The same with a unit, such as 45min, 8h or 3d; a query then expires at least a day later. Most policies "
            "allow a week in total.",
            default="as answer_within_s says",
        ),
    ] = None
    expires_after_s: Annotated[int, Option("Time until the query expires.", unit="seconds", at_least=1)] = 24 * 3600
    quorum_wait_s: Annotated[
        int | None,
        Option(
            "Longest wait for further parties once enough for a cohort have accepted, and again once enough are ready.",
            default="as long as the phase lasts",
            unit="seconds",
            at_least=1,
            flag="--quorum-wait",
        ),
    ] = None
    cohort_min: Annotated[
        int | None,
        Option("Fewest parties in a cohort.", default="all but one, and at least colluders + 2", at_least=1),
    ] = None
    colluders: Annotated[
        int | None,
        Option(
            "c, the number of parties assumed to collude with coordinator and learner.",
            default="1; 0 if there are only two parties",
            at_least=0,
        ),
    ] = None
    cohort_noise: Annotated[
        CohortNoise,
        Option(
            "answering: the noise is that of the cohort that answers, if every node knows that; smallest: that of the "
            "fewest parties, also if more answer."
        ),
    ] = "answering"
    mask_neighbours: Annotated[str | None, MASK_NEIGHBOURS] = None
    may_vanish: Annotated[int | None, MAY_VANISH] = None
    max_rows: Annotated[
        int | None,
        Option(
            "Most rows in a cohort.",
            default="four times what each party last stated in an answer, or before the first what the roster states, "
            "at least 1,000,000",
            at_least=1,
        ),
    ] = None
    purpose: Annotated[
        str,
        Option(
            "What the answer is for, such as a study and its number: signed, and shown to the people who decide at a "
            f"party. At most {MAX_PURPOSE} characters."
        ),
    ] = ""
    study: Annotated[
        Path | None,
        Option(
            "The file of the study that is asked for: its purpose, protocol number, organisation, person in charge and "
            "days. Signed, and shown to the people who decide at a party.",
            default="the [study] of the configuration; without one, queries name no study",
            unit="file",
        ),
    ] = None
    epoch: Annotated[
        str | None,
        Option(
            "Ask about the rows of this epoch only, such as 2026-11, as parties name them in their epoch_column; each "
            "epoch has its own budget.",
            default="all rows",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer_within is not None:
            self._take_answer_within(self.answer_within)
        mask_neighbours(self.mask_neighbours)
        if self.epoch is not None and (self.persons_may_repeat or 1) > 1:
            raise ConfigurationError(
                "a person may be in another epoch at each party: ask about all epochs, or leave persons_may_repeat out"
            )
        if self.epoch is not None and not is_epoch(self.epoch):
            raise ConfigurationError(f"epoch {self.epoch!r}: {EPOCH_RULE}")
        if self.purpose and not is_purpose(self.purpose):
            raise ConfigurationError(f"{PURPOSE_RULE}: write it so, or leave it out")

    def _take_answer_within(self, text: str) -> None:
        """Set the times that a text with a unit stands for."""
        if self.answer_within_s != AskedTerms.answer_within_s:
            raise ConfigurationError("answer_within and answer_within_s say the same: give one of them")
        answer_s = seconds_of(text, "answer_within")
        object.__setattr__(self, "answer_within_s", answer_s)
        object.__setattr__(self, "expires_after_s", max(self.expires_after_s, answer_s + _UNITS["d"]))
        # A copy with another answer_within_s means that.
        object.__setattr__(self, "answer_within", None)


_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 24 * 3600}
_TIME = re.compile(r"([1-9][0-9]{0,6}) ?(s|min|h|d)")


def seconds_of(text: str, name: str) -> int:
    """The seconds of a time with a unit. Raises ConfigurationError."""
    if (found := _TIME.fullmatch(text.strip())) is None:
        raise ConfigurationError(f"{name} {text!r}: give a whole number with a unit, such as 45min, 8h or 3d")
    return int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, kw_only=True)
class QueryTerms(AskedTerms):
    """What every request has."""

    delta: Annotated[Fraction, DELTA] = USUAL_DELTA
    fraction_bits: Annotated[
        int | None,
        Option(
            "Binary digits after the point, in an edge's coordinates.",
            default=f"{EDGE_FRACTION_BITS}; for moments {MOMENT_FRACTION_BITS}; for plain and dp-feat without --joint "
            f"those with the fewest ciphertexts, at most {EDGE_FRACTION_BITS}",
        ),
    ] = None
    max_parties: Annotated[
        int | None, Option("Most parties in a cohort.", default="all that are asked", at_least=1)
    ] = None
    attempts: Annotated[int, Option("Most attempts that may be started; parties charge each.", at_least=1)] = 3
    prepare_within_s: Annotated[int, Option("Time for parties to get ready.", unit="seconds", at_least=1)] = 3600
    upload_within_s: Annotated[int, Option("Time for parties to upload.", unit="seconds", at_least=1)] = 3600


@dataclass(frozen=True, kw_only=True)
class MomentsFields(Declared):
    """What a release of moments has beside its epsilon."""

    norm_bound: Annotated[
        Fraction | None,
        Option(
            "R, the clipping norm of records.",
            default="by the schema; for a plan without one, that of real-valued features",
            above=0,
        ),
    ] = None
    edge_weight: Annotated[
        Fraction | None,
        Option("moments: the precision of edges relative to products.", default="chosen by R", above=0),
    ] = None
    products_of_each_class: Annotated[
        bool,
        Option(
            "moments of a label of several classes: the products of columns for each class, not only those of all "
            "records; more values, each with the same noise."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ReleaseFields(MomentsFields):
    """What a release of some design has. `wire.design_options` says which design takes which."""

    design: Annotated[
        str | None,
        Option(
            f"{', '.join(DESIGNS)}; or {AUTO}, which chooses moments or gaussian rados for the coordinates, rows and "
            "epsilon, not in a simulation.",
            default=USUAL_DESIGN,
        ),
    ] = None
    rados: Annotated[
        int | None,
        Option(
            "Number of rados; not for moments.",
            default="for gaussian and fixed-support with --epsilon as many as suit the coordinates, the rows and the "
            f"noise; for dp-feat as many as --epsilon allows, at most {USUAL_RADOS}; in a simulation half the rows, at "
            f"most {USUAL_RADOS}",
            at_least=1,
        ),
    ] = field(default=None, kw_only=False)
    sensitive: Annotated[
        str | tuple[str, ...] | None,
        Option("dp-feat: a boolean or threshold feature to protect; with --joint a source column; repeatable."),
    ] = None
    rounded: Annotated[
        str | tuple[str, ...] | None,
        Option("dp-feat: a sensitive feature that is a number, to be rounded to a sign; repeatable."),
    ] = None
    joint: Annotated[bool, Option("dp-feat: protect a source column in the whole release, by noise.")] = False
    epsilon: Annotated[
        Fraction | None,
        Option(
            "Total epsilon. dp-feat without --joint: the most against the learner alone. Other designs: noise is "
            "calibrated to it, if other parties collude.",
            above=0,
        ),
    ] = None
    epsilon_per_rado: Annotated[
        Fraction | None,
        Option("dp-feat: epsilon of one rado, by truncation (Algorithm 2).", default="no truncation", above=0),
    ] = None
    support: Annotated[
        Fraction | None,
        Option(
            "fixed-support, gaussian: the fraction of its records that a party draws for a rado.",
            default="1/2 for fixed-support, uniform signatures for gaussian",
            above=0,
        ),
    ] = None

    @property
    def design_name(self) -> str:
        """The design, by default the usual one."""
        return USUAL_DESIGN if self.design is None else self.design

    @property
    def sensitive_names(self) -> tuple[str, ...]:
        """The names of the sensitive features."""
        return names_of(self.sensitive)

    @property
    def rounded_names(self) -> tuple[str, ...]:
        """The names of the features that are rounded."""
        return names_of(self.rounded)


def given_options(asked: ReleaseFields) -> dict[str, Any]:
    """The options of a design that are set, by name."""
    names = {"sensitive": asked.sensitive_names, "rounded": asked.rounded_names}
    given = {**values_of(asked, ReleaseFields), **names}
    # By identity: 0 equals False, but is a value that was given.
    set_ = {name: value for name, value in given.items() if value is not None and value is not False and value != ()}
    return {name: value for name, value in set_.items() if name in OPTIONS}


# The options of commands.


@dataclass(frozen=True, kw_only=True)
class Following(Declared):
    """How a command that asks waits, and what it does about earlier answers."""

    ask_again: Annotated[
        bool,
        Option(
            "Ask, and be charged, again if the same was asked before and has an answer; in a training also a round "
            "whose query ended without a total, whose attempts count under collusion."
        ),
    ] = False
    would_accept: Annotated[
        bool,
        Option(
            "Ask the parties whether they would accept all of it, over how many rows. Costs nothing. Exit code 1: too "
            "few would."
        ),
    ] = False
    timeout_s: Annotated[
        float | None, Option("Longest wait; the query continues.", default="no limit", unit="seconds", above=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class QueryOptions(ReleaseFields, QueryTerms, Following):
    """The options of `rado learner query`."""

    config: Annotated[Path, Option("This node's configuration file.", short="-c")]
    schema: Annotated[Path, Option("The schema that the parties share.")]
    label: Annotated[str | None, LABEL] = None
    map_file: Annotated[Path | None, MAP_FILE] = None
    hold_back: Annotated[Fraction | None, HOLD_BACK] = None
    wait: Annotated[bool, Option("Follow the query and fetch its release.")] = True
    retries: Annotated[
        int, Option("Attempts to start without asking after one is lost; parties charge each.", at_least=0)
    ] = 0


@dataclass(frozen=True, kw_only=True)
class AskOptions(AskedTerms, Following):
    """The options of every command that asks within a budget."""

    config: Annotated[Path | None, Option("The learner's configuration file. Required to ask.", short="-c")] = None
    epsilon: Annotated[
        Fraction | None,
        Option("Total epsilon of all answers, if other parties collude. Required to ask.", above=0),
    ] = None
    delta: Annotated[Fraction, DELTA_OR_ZERO] = USUAL_DELTA
    reuse: Annotated[
        bool,
        Option(
            "Use the answer to the same question that is on disk; nothing is asked. In a training: use answers on "
            "disk, of another training too, and ask only the others."
        ),
    ] = False

    def budget(self, what: str) -> tuple[Fraction, Fraction]:
        """Epsilon and delta of all answers. what: who asks. Raises ConfigurationError without an epsilon."""
        if self.epsilon is None:
            raise ConfigurationError(
                f"{what} queries the parties, and answers have noise: give the --epsilon of all answers in total"
            )
        return self.epsilon, self.delta


ESTIMATOR_HELP = (
    "On a release of rados or moments: mean-variance; of rados: radoboost, radoboost-l1, -l2, -linf, -slope; of "
    "moments: moments-discriminant, linear (a number). By queries: newton, additive, logistic-gd, hinge-gd, "
    "logistic-regression, linear-regression, "
    "naive-bayes, conjunction, decision-stump, decision-list, kearns-list, point, "
    "threshold."
)
USUAL_ESTIMATOR = "mean-variance"


@dataclass(frozen=True, kw_only=True)
class TrainOptions(AskOptions):
    """The options of `rado learner train`."""

    to: Annotated[Path, Option("Write the model to this new file.", flag="--output", short="-o")]
    release: Annotated[
        tuple[Path, ...],
        Option(
            "The directory of a release, or of one of each epoch, oldest first; none for an estimator that queries.",
            argument=True,
        ),
    ] = ()
    forgetting: Annotated[
        Fraction | None,
        Option(
            "Moments of several epochs: the weight of each epoch relative to the next one.",
            default="1, all alike",
            above=0,
            at_most=1,
        ),
    ] = None
    estimator: Annotated[str, Option(ESTIMATOR_HELP)] = USUAL_ESTIMATOR
    option: Annotated[tuple[str, ...], ESTIMATOR_OPTION] = ()
    schema: Annotated[Path | None, Option("To query: the schema that the parties share.")] = None
    label: Annotated[str | None, LABEL] = None
    rounds: Annotated[int | None, ROUNDS] = None
    class_weight: Annotated[str | None, CLASS_WEIGHT] = None
    journal: Annotated[
        Path | None,
        Option("To query: file with the queries so far, to continue from.", default="OUTPUT.journal"),
    ] = None
    hold_back: Annotated[Fraction | None, HOLD_BACK] = None
    adaptive: Annotated[int | None, ADAPTIVE] = None
    start_from: Annotated[
        Path | None,
        Option(
            "newton: an earlier model of the same schema, such as last month's, at which the first gradient is asked "
            "for. Fewer --rounds then do. Its releases count in the new model's statement.",
            unit="file",
        ),
    ] = None
