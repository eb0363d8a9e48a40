"""Words for the figures of privacy. Statements, plans, reports and errors take them from here."""

from collections.abc import Mapping
from fractions import Fraction

from dpcore.numbers.rationals import rounded_up

UNITS: Mapping[str, str] = {
    "none": "one record",
    "marginal": "one record's value of the sensitive coordinate",
    "joint": "one record's cell of the sensitive source column",
    "record": "one record",
    "person": "one person, with all rows at one party",
}
"""The unit of privacy where no schema names its columns."""

ROW_NOT_PERSON = "A record is one row: a person with several rows is not covered as a person."


def person(parties: int) -> str:
    """The unit of privacy of persons who are at up to so many parties."""
    return UNITS["person"] if parties == 1 else f"one person, with all rows at up to {parties} parties"


_WITHIN = {"marginal": "that coordinate's own values"}


def within(scope: str, releases: int = 1) -> str:
    """What a bound of this scope is about."""
    return _WITHIN.get(scope, "the whole release") if releases == 1 else "all of them"


def delta_words(delta: Fraction | float) -> str:
    """Delta as it was counted, not rounded."""
    return repr(float(delta)).removesuffix(".0")


def limit(epsilon: Fraction | float, delta: Fraction | float) -> str:
    """A limit or a budget. It is an input, so epsilon is not rounded up."""
    return f"epsilon {float(epsilon):.6g} at delta {delta_words(delta)}"


def coalition(parties: str = "") -> str:
    """A condition: who colludes. parties: those that do beside coordinator and learner, with their number."""
    return f"if the coordinator{f' and {parties} collude' if parties else ' colludes'} with the learner"


def alone(epsilon: float, delta: Fraction | float) -> str:
    """The figure against the learner alone."""
    return f"epsilon is at most {rounded_up(epsilon)} at delta {delta_words(delta)} against the learner alone"


def figures(epsilon: float, colluding: float, delta: Fraction | float, others: str = "under collusion") -> str:
    """Both figures of a release: against the learner alone, and against a coalition."""
    return f"{alone(epsilon, delta)}, and at most {rounded_up(colluding)} {others}"


def definition(epsilon: float, colluding: float, delta: float, what: str, unit: str, others: str) -> list[str]:
    """The same as the property that is claimed. what: the release or releases. others: begins a sentence."""
    return [
        (
            f"Against the learner alone, {what} ({rounded_up(epsilon)}, {delta_words(delta)})-differentially private "
            f"for {unit}."
        ),
        f"{others}, epsilon is at most {rounded_up(colluding)} at the same delta.",
    ]


def after_attempt(colluding: float, delta: Fraction | float, what: str = "another attempt") -> str:
    """The figure under collusion after another attempt of a query, since each one counts."""
    return f"With {what}, epsilon under collusion becomes {rounded_up(colluding)} at delta {delta_words(delta)}"


def theorem(epsilon: float) -> str:
    """The bound of the paper's Theorem 6, beside the counted one."""
    return f"Theorem 6 of Nock, Patrini and Friedman (2015) alone would say {epsilon:.6g}"
