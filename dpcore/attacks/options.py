"""The options of a rehearsal, declared once for `rado party rehearse` and `rado simulate --attack`.

Imports nothing that computes, so that help is fast.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from dpcore.declared import Declared, Option
from dpcore.errors import ConfigurationError

ATTACK_NAMES = ("ica", "subset-sum", "all-but-one-cell", "membership", "subsumption", "sparse")
ATTACK = Option(f"An attack: {', '.join(ATTACK_NAMES)}; repeatable.", default="all")
USUAL_RADOS = (100, 1000)
LEAST_RADOS, MOST_RADOS = 2, 20_000


@dataclass(frozen=True, kw_only=True)
class RehearsalFields(Declared):
    """What is played. Raises ConfigurationError."""

    attack: Annotated[tuple[str, ...], ATTACK] = ()
    rados: Annotated[
        tuple[int, ...],
        Option(
            f"Number of rados of a release, {LEAST_RADOS} to 20,000; repeatable.",
            default=" and ".join(map(str, USUAL_RADOS)),
        ),
    ] = ()
    epsilon: Annotated[
        Fraction, Option("Epsilon of the releases that protect rows, or one column.", above=0, at_most=100)
    ] = Fraction(1)
    delta: Annotated[Fraction, Option("Its delta.", above=0, below=1)] = Fraction(1, 1_000_000)
    guesses: Annotated[
        int, Option("Releases for each attack that guesses between two tables.", at_least=20, at_most=100_000)
    ] = 200
    recoveries: Annotated[
        int, Option("Releases for each attack that recovers many rows.", at_least=1, at_most=1000)
    ] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.attack:
            if name not in ATTACK_NAMES:
                raise ConfigurationError(f"no attack is called {name!r}: choose from {', '.join(ATTACK_NAMES)}")
        for n in self.rados:
            if not LEAST_RADOS <= n <= MOST_RADOS:
                raise ConfigurationError(f"{n} rados: a rehearsal takes {LEAST_RADOS} to {MOST_RADOS}")

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks that are played, each once."""
        return tuple(dict.fromkeys(self.attack)) or ATTACK_NAMES

    @property
    def numbers_of_rados(self) -> tuple[int, ...]:
        """Each number of rados once, ascending."""
        return tuple(sorted(set(self.rados))) or USUAL_RADOS
