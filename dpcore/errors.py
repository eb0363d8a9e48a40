"""Errors shared by all packages. Each has fields and a sentence that says what to do.

`exit_code` is the exit code of the `rado` command (see radofed.cli): 1 the job failed, 2 connection or authentication,
or what a node needs is not there yet, 3 timed out, 4 bad arguments or configuration, 6 refused by policy, privacy or
cohort.
"""

from typing import ClassVar, Self


class RadofedError(Exception):
    """Root of all errors that radofed raises on purpose. Any other exception is a bug (exit code 5)."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(RadofedError):
    """A file, an option or an argument is invalid."""

    exit_code = 4


class NotYetError(ConfigurationError):
    """What a node needs, such as an address, is not there and may come by itself: it is to be started again."""

    exit_code = 2


class ShapeError(RadofedError):
    """The shapes of arrays do not match."""

    exit_code = 4


class SchemaError(ConfigurationError):
    """A schema is malformed, or two schemas that must agree differ."""


class ModelError(ConfigurationError):
    """A file is not a model, or was changed after the model was saved."""


class DataError(RadofedError):
    """A row of a party's file breaks its schema. Only the party sees this error; it quotes no cell.

    may_pass: the table could not be read now, and reading it later may succeed without a correction.
    """

    exit_code = 4
    may_pass: bool = False

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

    def passing(self) -> Self:
        """This error, marked as one that may pass by itself."""
        self.may_pass = True
        return self


class PlanError(RadofedError):
    """A query that cannot be sent as it is: empty, unbounded or too large."""

    exit_code = 6


class SlotOverflowError(PlanError):
    """A sum does not fit its slot."""

    exit_code = 4

    def __init__(self, *, needed_bits: int, available_bits: int, remedy: str) -> None:
        self.needed_bits, self.available_bits = needed_bits, available_bits
        super().__init__(f"a sum needs {needed_bits} bits and {available_bits} are available: {remedy}")


class CiphertextError(RadofedError):
    """A ciphertext, a plaintext or a key is not valid."""


class TotalError(RadofedError):
    """A decrypted total is not the sum over exactly the cohort."""


class OracleRefusedError(RadofedError):
    """The federation refuses a query: a privacy budget is spent, or a policy does not admit the query.

    spent: the cost of the composition of earlier answers, in words. An estimator of several rounds keeps its result.
    """

    exit_code = 6

    def __init__(self, sentence: str, *, spent: str = "") -> None:
        self.spent = spent
        super().__init__(f"{sentence}; {spent}" if spent else sentence)
