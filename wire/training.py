"""The training that a query is a round of: its terms, signed in each of its queries, so that people decide once."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from rado.v1 import query_pb2
from radobase.printing import amount, json_text
from wire.codec import Wire
from wire.envelopes import KEY_BYTES, sha256
from wire.errors import Code, WireError
from wire.texts import is_purpose

MOST_QUERIES: Final = 100_000
LONGEST_OPTIONS: Final = 200
_ESTIMATOR = re.compile(r"[a-z0-9-]{1,40}")
_DOMAIN = b"rado.v1/training\0"


@dataclass(frozen=True)
class Training(Wire[query_pb2.Training]):
    """A training and its terms. Raises WireError(QUERY_INVALID) if they are none."""

    name: bytes
    """Random: no other training has it."""
    estimator: str
    options: str
    """Of the estimator, in words; may be empty."""
    schema_digest: bytes
    """Of the schema of all its queries, without its weight: statistics count rows alike."""
    epsilon: Fraction
    """What all its answers cost at most, if other parties collude."""
    delta: Fraction
    queries: int
    """The most that it sends; 0 for as many as fit in its epsilon."""
    max_attempts: int
    """Of each query."""
    begins_unix_s: int
    ends_unix_s: int

    def __post_init__(self) -> None:
        checks = {
            f"a training's name has {KEY_BYTES} bytes": len(self.name) == KEY_BYTES,
            "an estimator is named by 1 to 40 of a-z, 0-9 and '-'": _ESTIMATOR.fullmatch(self.estimator) is not None,
            f"options have at most {LONGEST_OPTIONS} printable characters, without outer spaces": (
                len(self.options) <= LONGEST_OPTIONS and (not self.options or is_purpose(self.options))
            ),
            f"a schema's digest has {KEY_BYTES} bytes": len(self.schema_digest) == KEY_BYTES,
            "a training's epsilon is positive": self.epsilon > 0,
            "a training's delta is from 0 to below 1": 0 <= self.delta < 1,
            f"a training has at most {MOST_QUERIES} queries": 0 <= self.queries <= MOST_QUERIES,
            "a training's queries have at least one attempt": self.max_attempts >= 1,
            "a training ends after it begins": 0 <= self.begins_unix_s < self.ends_unix_s < 1 << 63,
        }
        for rule, holds in checks.items():
            if not holds:
                raise WireError(Code.QUERY_INVALID, f"It must hold that {rule}.")

    @property
    def digest(self) -> bytes:
        """Identifies the training with all its terms."""
        return sha256(_DOMAIN, self.to_bytes())

    @property
    def title(self) -> str:
        """What is trained, without its limits. Options are quoted, so that they look like nothing else."""
        return f"training of {self.estimator}{f' with {json_text(self.options)}' if self.options else ''}"

    @property
    def words(self) -> str:
        """In one line, with its limits."""
        queries = f"{self.queries} queries" if self.queries else "as many queries as fit in it"
        cost = f"epsilon {float(self.epsilon):.6g} at delta {float(self.delta):.6g}"
        attempts = amount(self.max_attempts, "attempt")
        return f"{self.title}: at most {cost}, {queries}, each in up to {attempts}"
