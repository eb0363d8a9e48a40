"""Retraining by queries as rows arrive in epochs, in a simulation: how many rounds a warm start saves.

After each epoch an estimator asks about its rows alone, with the whole budget: once from nothing, and once from the
model of the epoch before. This is repeated for every number of rounds; the first epoch's model has the most of them.
Every model of a later epoch is tested on the next one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dpcore.numbers.fixed_point import ONE
from dpcore.paillier.secret import SecretKey
from dpcore.queries.statement import PrivacyStatement
from dpcore.randomness.sources import SystemRandom
from learner.federation import Federation
from learner.model import Model
from learner.training import model_of_answers
from radobase.printing import amount
from radofed.simulation.epochs import NamedEpoch, parts_of
from radofed.simulation.federation import SimulatedFederation
from radofed.simulation.oracles import SimulatedSource
from radofed.simulation.run import SimulationOptions
from radofed.simulation.table import SimulationTable, party_names
from radofed.simulation.workers import start_hosts

LEAST_EPOCHS = 3
"""One to start from, one to train on, and one to test on."""
LEAST_ROUNDS = 2
SAME = 0.0025
"""Errors count as the same if they differ by at most this."""


@dataclass(frozen=True)
class TestedRounds:
    """The mean errors, over epochs, of models of so many rounds, on the epoch after theirs."""

    rounds: int
    cold: float
    """Of those that started from nothing."""
    warm: float
    """Of those that started from the model of the epoch before, with as many rounds."""


@dataclass(frozen=True)
class WarmStartsResult:
    """The result of a simulation of retraining."""

    estimator: str
    tested: tuple[TestedRounds, ...]
    """From the fewest rounds to the most."""
    epochs: tuple[str, ...]
    """Those whose rows models were tested on."""
    privacy: PrivacyStatement
    """Of the last model with warm starts and the most rounds, and of all that it is from."""
    notes: tuple[str, ...]

    @property
    def needed(self) -> dict[str, int | None]:
        """The fewest rounds, cold and warm, at which the error is that of a cold start with the most rounds."""
        wanted = self.tested[-1].cold + SAME
        return {
            way: next((each.rounds for each in self.tested if getattr(each, way) <= wanted), None)
            for way in ("cold", "warm")
        }

    def sentences(self) -> list[str]:
        """For people: a line for each number of rounds, the rounds that are needed, and the privacy."""
        lines = [
            f"{self.estimator}, trained on each epoch with the whole budget, and tested on the next one",
            f"(mean errors of {amount(len(self.epochs), 'epoch')} in percent):",
            f"{'rounds':>8} {'cold':>8} {'warm':>8}",
            *(f"{each.rounds:>8} {100 * each.cold:>8.2f} {100 * each.warm:>8.2f}" for each in self.tested),
        ]
        cold, warm = self.needed["cold"], self.needed["warm"]
        started = "none of these numbers of rounds is enough" if warm is None else f"{warm} are enough"
        lines.append(
            f"A cold start needs {cold} rounds for its error at {self.tested[-1].rounds}, within "
            f"{100 * SAME:g} points. From the model of the epoch before, {started}."
        )
        parallel = (
            "Each epoch's training has the whole budget, and each row is in one epoch: these figures are those of the "
            "last model and of all that it started from."
        )
        return [*lines, *self.privacy.short_sentences(), parallel, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "estimator": self.estimator,
            "rounds": [asdict(each) for each in self.tested],
            "needed": self.needed,
            "epochs": list(self.epochs),
            "privacy": self.privacy.to_dict(),
            "notes": list(self.notes),
        }


def simulate_warm_starts(
    table: SimulationTable,
    epochs: Sequence[NamedEpoch],
    options: SimulationOptions,
    learner: tuple[str, Callable[[int], Any]],
    most_rounds: int,
    note: Callable[[str], None] = lambda _: None,
) -> WarmStartsResult:
    """Train on each epoch but the last, cold and warm, for every number of rounds up to `most_rounds`.

    epochs: at least `LEAST_EPOCHS`. options: with a budget. learner: its name, and what makes one of so many rounds.
    Raises what the estimator and its queries raise.
    """
    names = party_names(options.parties)
    secret = SecretKey.generate(SystemRandom(), bits=options.key_bits) if options.encrypt else None
    numbers = range(LEAST_ROUNDS, most_rounds + 1)
    errors: dict[tuple[int, str], list[float]] = {(rounds, way): [] for rounds in numbers for way in ("cold", "warm")}
    warm: dict[int, Model] = {}
    with start_hosts(table.records, options.seed, names, workers=options.actors, timeout_s=options.timeout_s) as hosts:
        training = _Training(
            SimulatedFederation(hosts, names, options.seed, secret, **options.of_requests),
            table,
            options,
            learner,
        )
        for number, (epoch, following) in enumerate(pairwise(epochs), start=1):
            if number == 1:
                first = training.model(epoch, number, "cold", most_rounds)
                warm = dict.fromkeys(numbers, first)
                continue
            for rounds in numbers:
                cold = training.model(epoch, number, "cold", rounds)
                warm[rounds] = training.model(epoch, number, "warm", rounds, warm[rounds])
                errors[rounds, "cold"].append(_error(cold, table, following))
                errors[rounds, "warm"].append(_error(warm[rounds], table, following))
            note(f"epoch {epoch.name}: {amount(2 * len(numbers), 'model')} trained")
    tested = [TestedRounds(n, *(float(np.mean(errors[n, way])) for way in ("cold", "warm"))) for n in numbers]
    return WarmStartsResult(
        learner[0], tuple(tested), tuple(each.name for each in epochs[2:]), warm[most_rounds].statement, table.notes
    )


@dataclass(frozen=True, eq=False)
class _Training:
    """What all trainings of a simulation share."""

    federation: SimulatedFederation
    table: SimulationTable
    options: SimulationOptions
    learner: tuple[str, Callable[[int], Any]]

    def model(self, epoch: NamedEpoch, number: int, way: str, rounds: int, start: Model | None = None) -> Model:
        """The model of so many rounds that ask about this epoch's rows."""
        name, make = self.learner
        budget = self.options.budget
        assert budget is not None, "an estimator that queries has a budget"
        source = SimulatedSource(
            self.federation, parts_of(self.table, epoch, number, self.options), number, f"{name}/{way}/{rounds}"
        )
        oracle = Federation(source, self.table.schema, epoch=epoch.name).within(budget.epsilon, budget.delta)
        estimator = make(rounds)
        estimator.fit_queries(oracle, **({} if start is None else {"start": start.theta}))
        return model_of_answers(estimator, oracle, name, start)


def _error(model: Model, table: SimulationTable, epoch: NamedEpoch) -> float:
    usable = epoch.rows[table.records.usable[epoch.rows]]
    x, labels = table.records.features[usable] / float(ONE), table.records.labels[usable]
    return float(np.mean(model.predicted(model.scores(x)) != labels))
