"""What a simulation has, declared once for `rado simulate` and `radofed.simulate`.

Imports nothing that computes, so that a wrong value is refused at once.
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from dpcore.declared import Declared, Option, declarations
from dpcore.errors import ConfigurationError
from wire.request_fields import (
    ADAPTIVE,
    CLASS_WEIGHT,
    DELTA_OR_ZERO,
    ESTIMATOR_OPTION,
    KEY_BITS,
    KEY_SIZE,
    MAP_FILE,
    MASK_NEIGHBOURS,
    ROUNDS,
    SPLIT,
    USUAL_DELTA,
    ReleaseFields,
    Split,
    UnitFields,
    mask_neighbours,
)

LEAST_PARTIES, MOST_PARTIES = 2, 1000
PARTIES = Option(f"Number of parties, {LEAST_PARTIES} to 1,000.", at_least=LEAST_PARTIES, at_most=MOST_PARTIES)
SIMULATED_VANISHING = Option(
    "Draw the noise of a federation in which so many parties may vanish: always that of the smallest cohort. Every "
    "simulated party answers, and nothing is encrypted.",
    default="0: noise of the cohort that answers",
    at_least=0,
)
_LARGEST_SEED = 2**32 - 1
Target = Literal["two-classes", "classes", "number", "count", "event"]


@dataclass(frozen=True, kw_only=True)
class RunFields(Declared):
    """How a simulation runs."""

    parties: Annotated[int, PARTIES] = 10
    folds: Annotated[int, Option("Number of stratified folds.", at_least=2, at_most=1000)] = 10
    seed: Annotated[
        int, Option("Seed of folds, partition and every draw of the parties.", at_least=0, at_most=_LARGEST_SEED)
    ] = 0
    encrypt: Annotated[bool, Option("Encrypt and mask. Changes no figure.")] = False
    mask_neighbours: Annotated[str | None, MASK_NEIGHBOURS] = None
    may_vanish: Annotated[int | None, SIMULATED_VANISHING] = None
    key_bits: Annotated[int, KEY_SIZE] = KEY_BITS
    workers: Annotated[
        int | None,
        Option(
            "Ray workers that share the parties; 0: this process alone.",
            default="one for each CPU",
            at_least=0,
            at_most=MOST_PARTIES,
        ),
    ] = None
    timeout_s: Annotated[float, Option("Longest wait for a worker.", unit="seconds", above=0)] = 3600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.may_vanish and self.encrypt:
            raise ConfigurationError(
                "a simulation does not take masks off for parties that vanish: leave encrypt out, which changes no "
                "figure, or leave may_vanish out"
            )

    @property
    def of_requests(self) -> dict[str, Any]:
        """What a simulated federation gives to every request."""
        return {"mask_neighbours": self.mask_neighbours, "may_vanish": self.may_vanish}


@dataclass(frozen=True, kw_only=True)
class SimulationFields(RunFields, ReleaseFields, UnitFields):
    """The keywords of `radofed.simulate`, beside those that take objects."""

    label: Annotated[
        str | None,
        Option(
            "The label's column; with a schema of several labels, one of them by its name.",
            default="the schema's; else the last one",
        ),
    ] = None
    positive: Annotated[
        str | tuple[str, ...] | None, Option("A positive value of the label; repeatable, one value a time.")
    ] = None
    target: Annotated[
        Target | None,
        Option(
            "What the label is, without a schema: two-classes; classes, all values of its column; number; count; or "
            "event, a time to an event. Of classes, without --epsilon estimators learn from exact sums.",
            default="the schema's; else two-classes",
        ),
    ] = None
    exposure: Annotated[
        str | None,
        Option("With --target count: the column of what it is counted over, such as a time; without a schema."),
    ] = None
    event: Annotated[
        str | None,
        Option(
            "With --target event: the column that says whether the event happened at the label's time; --positive "
            "names the texts that mean so."
        ),
    ] = None
    partition: Annotated[
        str, Option("How rows are split over parties: iid, size-skew, label-skew or by-column:NAME.")
    ] = "iid"
    id_column: Annotated[str | None, Option("With --unit person: the column that names each row's person.")] = None
    delta: Annotated[Fraction, DELTA_OR_ZERO] = USUAL_DELTA
    split: Annotated[Split, SPLIT] = "local"
    rounds: Annotated[int | None, ROUNDS] = None
    class_weight: Annotated[str | None, CLASS_WEIGHT] = None
    hold_back: Annotated[
        Fraction | None,
        Option(
            "Share of its rows that each party holds back. Estimators learn from the others, and a query evaluates "
            "each on these.",
            above=0,
        ),
    ] = None
    adaptive: Annotated[int | None, ADAPTIVE] = None
    evaluation_epsilon: Annotated[
        Fraction | None, Option("Epsilon of each evaluation on rows that are held back.", default="--epsilon", above=0)
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        mask_neighbours(self.mask_neighbours)
        if self.unit == "person" and self.id_column is None:
            raise ConfigurationError("persons need ids: give id_column, the column that names each row's person")
        if self.unit != "person" and self.id_column is not None:
            raise ConfigurationError("id_column is about persons: give unit = person too, or leave it out")
        if (self.persons_may_repeat or 1) > self.parties:
            raise ConfigurationError(
                f"a person may be at {self.persons_may_repeat} of {self.parties} parties: lower persons_may_repeat"
            )

    @property
    def is_exact(self) -> bool:
        """Whether estimators learn a label of several classes from exact sums over the pooled rows: without epsilon."""
        return self.target == "classes" and self.epsilon is None and not self.described

    @property
    def described(self) -> list[str]:
        """The options that describe a release and are given, in words."""
        fields = [field for field in declarations(ReleaseFields) if field.name != "epsilon"]
        given = [field.words for field in fields if field.is_changed(getattr(self, field.name))]
        return [*given, *(["split = exact"] if self.split == "exact" else [])]


EPOCHS = Option(
    "Rows arrive in epochs: their number, for runs of rows in the table's order, or by-column:NAME. Each is released "
    "once, or newton trains on each, and models are tested on the next one, instead of by folds."
)
FORGETTING = Option(
    "With --epochs: the weight of each epoch relative to the next one, for moments.",
    default="1/2",
    above=0,
    at_most=1,
)


@dataclass(frozen=True, kw_only=True)
class EpochFields(Declared):
    """How rows arrive over time."""

    epochs: Annotated[str | None, EPOCHS] = None
    forgetting: Annotated[Fraction | None, FORGETTING] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is None and self.is_forgetting_given:
            raise ConfigurationError("--forgetting weighs epochs: give --epochs, or leave it out")

    @property
    def is_forgetting_given(self) -> bool:
        """Whether a factor is given."""
        return self.forgetting is not None

    @property
    def factor(self) -> Fraction:
        """The forgetting factor."""
        return Fraction(1, 2) if self.forgetting is None else self.forgetting


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(SimulationFields):
    """The options of `rado simulate`."""

    data: Annotated[Path, Option("A CSV (also gzipped) or Parquet file.")]
    parties: Annotated[int, PARTIES]
    schema: Annotated[Path | None, Option("A schema file.", default="inferred from the table, not privately")] = None
    map_file: Annotated[Path | None, MAP_FILE] = None
    estimator: Annotated[
        tuple[str, ...],
        Option(
            "A name of `rado learner train`, or adaboost; repeatable, or several with commas.",
            default="newton at --epsilon 1; mean-variance if options describe a release",
        ),
    ] = ()
    option: Annotated[tuple[str, ...], ESTIMATOR_OPTION] = ()
    epochs: Annotated[str | None, EPOCHS] = None
    forgetting: Annotated[Fraction | None, FORGETTING] = None
    picture: Annotated[
        Path | None,
        Option(
            "Repeat the simulation for every one of --epsilons, and draw error against epsilon into this new SVG file."
        ),
    ] = None
    epsilons: Annotated[str | None, Option("With --picture: the epsilons, exact, E1,E2,...", default="0.1,0.3,1,3")] = (
        None
    )
    attack: Annotated[
        tuple[str, ...],
        Option(
            "Train nothing, and play this attack of `rado party rehearse`, or all, on the rows of the smallest party; "
            "repeatable."
        ),
    ] = ()
    per_fold: Annotated[Path | None, Option("Write a row for each fold and estimator to this Parquet file.")] = None
