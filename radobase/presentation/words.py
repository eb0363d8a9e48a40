"""What reports and the console say: figures in words, chances, sentences about protection, entries of a registry.

Each sentence about protection names the part of docs/threat-model.md that it repeats.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dpcore.accounting.odds import chance_after
from dpcore.accounting.words import ROW_NOT_PERSON
from dpcore.numbers.rationals import upper_digits
from radobase.printing import amount

_BEFORE = (0.01, 0.1, 0.5)
"""Chances of a guess about a row before anything is released."""


def day(unix_s: float) -> str:
    """Local date."""
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone():%Y-%m-%d}"


def figure(value: float | None, rounded: Callable[[float, int], str] = "{:.{}g}".format) -> str:
    """Four digits; words if the number is not finite. rounded: to the nearest, or outwards."""
    return "no bound" if value is None or not math.isfinite(value) else rounded(value, 4)


def number(value: float) -> str:
    """A whole number with separators."""
    return f"{value:,.0f}"


def counted(count: int, unit: str) -> str:
    """A number with separators and its unit, such as "1 row" or "12,000 rows"."""
    return f"{number(count)} {amount(count, unit).partition(' ')[2]}"


def effort_words(
    ciphertexts: int, upload_bytes: int, key_bits: int, seconds: float, *, without: str, layout: str = ""
) -> str:
    """The ciphertexts, bytes and seconds of a query. without: what its seconds lack beside the network."""
    return (
        f"Each party uploads {counted(ciphertexts, 'ciphertext')} under a {key_bits}-bit key, {number(upload_bytes)} "
        f"bytes{f': {layout}' if layout else ''}. Encrypting, adding and decrypting take about "
        f"{float(f'{seconds:.2g}'):,.15g} s, by measurements on two cores, without {without} and the network."
    )


def seldom(probability: float) -> str:
    """A bound on a small probability, rounded up, also as one case of so many, never fewer cases than it says."""
    if not 0 < probability < 1:
        return f"{probability:.4g}"
    return f"{upper_digits(probability, 4)} (1 in {math.floor(round(1 / probability, 6)):,})"


def chances(first: float, second: float | None, delta: float) -> Iterator[tuple[str, str, str | None]]:
    """Chances of a guess about one row in words: before, and at most after each of two epsilons.

    second: None if nothing is stated for it.
    """
    for before in _BEFORE:
        after = None if second is None else chance_after(before, second, delta).of_100()
        yield f"{round(100 * before)} of 100", chance_after(before, first, delta).of_100(), after


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the part of the threat model that it repeats, such as "P3" or "4.2"."""

    text: str
    source: str


SEVERAL_ROWS = Sentence("A person with several rows: what is counted is one row.", "4.9")
GROUPS = Sentence("Facts about a group, such as the rate of a disease in a ward: to learn them is the purpose.", "4.13")
WRONG_RESULTS = Sentence("Wrong results: nothing proves that each party sends what the query asks for.", "4.7")
NOISE_KEPT = Sentence(
    "Each party whose noise is counted adds its share as the query says, and keeps it to itself.", "P4"
)
GOOD_COMPUTERS = Sentence(
    "Computers draw good random numbers, keep what they have written, and are not resumed from a snapshot.", "5, 4.3"
)
CRYPTOGRAPHY = Sentence(
    "The encryption, the signatures and the masks cannot be broken (Paillier, Ed25519, X25519, AES-256, SHA-256, TLS).",
    "5",
)

GUARANTEE = (
    "Epsilon and delta are proved upper bounds and not estimates: they are computed from the noise and the sensitivity "
    "of each answer, and not measured on the rows. What was really revealed is often less. They hold as long as what "
    "is assumed holds, such as that each party adds its noise and that the program does what it says; no third party "
    "has audited it."
)


def who_opens_a_part(colluders: int) -> str:
    """Who can open what leaves a party: the one sentence for it (docs/threat-model-details.md, P2, P3 and 4.2).

    colluders: of the accepted parties, as many as the party's policy assumes.
    """
    return (
        "the learner opens only the sum over all parties that answer together; this party's part alone can be opened "
        f"only by a learner with whom more than {colluders} of the parties that it accepts work together, or who has "
        "their signing keys"
    )


NO_PURPOSE = (
    "No query whose words are kept states a purpose. The learner states it elsewhere, and the sign-off has a line for "
    "it."
)

OF_STUDIES = "No query states a purpose of its own. Studies state theirs, which stand next."

_TERMS = (
    (
        "epsilon",
        "epsilon",
        "the measure of what may be revealed about a row: 0 is nothing, and more is less protection",
    ),
    ("delta", "delta", "a small allowance for exceptions to what epsilon promises"),
    ("collu", "collusion", "members work together against the others, with all that they know"),
    ("cohort", "a cohort", "the parties that answer together"),
    ("edge", "an edge vector", "the numbers of one row, with the sign of its label"),
    ("predicate", "a predicate", "a condition on a row, for which rows are counted"),
    ("rados?\\b", "a rado", "a sum over a random choice of rows; a model can be trained on many of them"),
    ("design", "a design", "the rule by which a query chooses the rows of its sums, and the noise that is added"),
    ("truncat", "truncation", "leaving out the choices of rows that would reveal too much about one column"),
    ("moment", "moments", "for each column its mean, and for each two columns the mean of their product"),
    ("gradient", "the gradient", "one mean over all rows, by which a model is changed to fit the rows better"),
    ("basis", "a basis", "other axes for the same columns, chosen from earlier answers"),
    ("loss", "a loss", "a measure of how badly a model fits a row"),
    ("clip", "clipped", "a row beyond a limit counts as if it were at the limit"),
    ("gaussian", "Gaussian noise", "noise of the bell-shaped normal distribution, on whole numbers"),
    ("laplace", "Laplace noise", "noise with a sharper peak than the normal distribution's, on whole numbers"),
)


def explained(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Terms that occur in these texts, each with its meaning for people who do not work in the field."""
    every = " ".join(texts).lower()
    return [(term, meaning) for part, term, meaning in _TERMS if re.search(rf"\b{part}", every)]


# Entries for the registry of differential privacy deployments, as a party or a learner knows their fields.
#
# Names and nesting are those of the highest tier of the registry that OpenDP keeps (opendp/deployments-registry-data,
# deployments/*.yaml, 2025), after Dwork, Kohli and Mulligan, "Differential privacy in practice: expose your epsilons!"
# (Journal of Privacy and Confidentiality 9, 2019).
#
# None: only the organisation can say. Where trust is distributed the registry has one text for all actors; here each
# actor has an entry.


TRUST: Mapping[str, str] = {
    "party": "Holds its own rows and adds its share of the noise. Trusted with its own rows only.",
    "coordinator": (
        "Adds ciphertexts. Not trusted with data: it sees who takes part, when and with how many rows, and what is "
        "asked."
    ),
    "learner": "Opens totals over whole cohorts. Not trusted with a row or with one party's sum.",
}
"""What each role is trusted with, by the role's name in the roster."""

_MECHANISMS = (
    "Discrete Gaussian noise, sampled exactly in shares by each party, and discrete Laplace noise from differences of "
    "Polya variables; for dp-feat the random choice of rows itself. Sums and noise are integers, and sensitivities are "
    "proved for the integers that are sent, so that no floating point weakens the noise. The operating system's "
    "randomness is used. The time that sampling takes is not constant, and no figure counts it."
)
_DEPLOYMENT: Mapping[str, Mapping[str, Any]] = {
    "product": {
        "name": None,
        "data_curators": None,
        "intended_use": None,
        "data_product_type": "Statistics and linear models over the rows of several organisations",
        "data_product_region": None,
        "data_product_sector": None,
        "description": None,
        "publication_date": None,
    },
    "dp_flavor": {
        "name": None,
        "input_metric": "Change of one record, the number of records being fixed",
        "bound_on_input_distance": 1,
        "output_measure": "Approximate max divergence",
        "bound_on_output_distance": None,
        "data_domain": "Tables of the federation's schema, with its bounds and categories",
        "unprotected_quantities": None,
    },
    "privacy_loss": {
        "privacy_unit": "Record-level",
        "privacy_unit_description": None,
        "privacy_parameters": None,
        "privacy_parameters_description": None,
    },
    "model": {
        "model_name": "Distributed",
        "model_name_description": (
            "Each party adds noise to masked, encrypted sums: no trusted curator. Trust is stated per actor."
        ),
        "actors": None,
        "collusion": None,
        "analysts_collusion": None,
        "release_type": "Many releases",
        "release_type_description": None,
        "data_source_type": "Static",
        "data_source_type_description": "Each party reads its table at start, and when its people tell it to.",
        "access_type": "Interactive",
        "access_type_description": "Learners may choose each query after the answers to earlier ones.",
    },
    "accounting": {
        "composition": None,
        "post_processing": "Models are computed from the released totals and cost nothing further.",
        "budget_refresh": None,
    },
    "implementation": {
        "pre_processing_eda_hyperparameter_tuning": (
            "The schema's bounds and categories are fixed before the first query and public to the federation. If they "
            "were drafted from the rows, that is not counted. Tuning by queries is charged like every other query."
        ),
        "mechanisms": _MECHANISMS,
        "justification": None,
        "software": None,
        "assumptions": None,
    },
    "resources": {"sources": ["docs/threat-model.md"], "registry_authors": None},
}
"""The fields, with what is the same in every entry."""


def entry(**own: Mapping[str, Any]) -> dict[str, Any]:
    """An entry in JSON types, with a role's own fields by group; they stand for the shared ones of their names."""
    deployment = {group: {**fields, **own.get(group, {})} for group, fields in _DEPLOYMENT.items()}
    return {"tier": 3, "status": "Draft", "deployment": deployment}


class _Member(Protocol):
    """A member of a roster, as reports list it."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def left_after(self) -> int | None: ...


def actor(member: _Member, **own: Any) -> dict[str, Any]:
    """An actor of an entry, with what this role knows of it."""
    return {
        "name": member.name,
        "role": member.role,
        "trust": TRUST[member.role],
        **own,
        "fingerprint": member.fingerprint or None,
        "left_after_roster": member.left_after,
    }


def parameters(epsilon: float | None, delta: float | None) -> dict[str, float | None]:
    """Privacy parameters by name; None if nothing is bounded."""
    return {"epsilon": epsilon, "delta": delta}


def unit(words: str) -> str:
    """The unit of privacy, and what it leaves out."""
    return f"The unit is {words}. {ROW_NOT_PERSON}"


def texts(sentences: Iterable[Sentence]) -> list[str]:
    """The sentences without their sources."""
    return [sentence.text for sentence in sentences]
