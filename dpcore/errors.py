"""Errors that every part shares: each has fields, and one sentence that says what to do.

`exit_code` is what the `rado` command ends with (see radofed.cli): 1 the job failed, 2 connection or authentication,
3 timed out, 4 bad arguments or configuration, 6 refused by policy, privacy or cohort.
"""

from typing import ClassVar


class RadofedError(Exception):
    """Root of all errors that radofed raises on purpose; anything else that escapes is a bug (exit code 5)."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(RadofedError):
    """A file, an option or an argument is not what it should be."""

    exit_code = 4


class ShapeError(RadofedError):
    """Arrays do not fit one another."""

    exit_code = 4


class SchemaError(ConfigurationError):
    """A schema is malformed or two schemas that should agree do not."""


class ModelError(ConfigurationError):
    """A file that is no model, or not the model that was saved."""


class DataError(RadofedError):
    """A row of a party's file breaks its schema. For the party's own eyes: never sent.

    It says where and which rule is broken, and quotes no cell: it ends in logs and on screens.
    """

    exit_code = 4

    def __init__(
        self,
        sentence: str,
        *,
        file: str = "",
        line: int | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.file, self.line, self.row, self.column = file, line, row, column
        place = ", ".join(
            part
            for part in (
                file,
                f"line {line}" if line is not None else "",
                f"row {row}" if row is not None else "",
                f"column {column!r}" if column else "",
            )
            if part
        )
        super().__init__(f"{place}: {sentence}" if place else sentence)


class PlanError(RadofedError):
    """A query that cannot be asked as it stands: empty, void, infinite or too large."""

    exit_code = 6


class SlotOverflowError(PlanError):
    """Sums do not fit their slots."""

    exit_code = 4

    def __init__(self, *, needed_bits: int, available_bits: int, remedy: str) -> None:
        self.needed_bits, self.available_bits = needed_bits, available_bits
        super().__init__(f"a sum needs {needed_bits} bits and {available_bits} are there: {remedy}")


class CiphertextError(RadofedError):
    """A ciphertext, a plaintext or a key that is not valid."""


class TotalError(RadofedError):
    """A decrypted total that is not the sum over exactly the cohort."""


class OracleRefusedError(RadofedError):
    """Nobody answers what a learner asks: its privacy is spent, or a policy does not admit it.

    spent: what earlier answers cost together, in words. A learner of several rounds then keeps what it has.
    """

    exit_code = 6

    def __init__(self, sentence: str, *, spent: str = "") -> None:
        self.spent = spent
        super().__init__(f"{sentence}; {spent}" if spent else sentence)
