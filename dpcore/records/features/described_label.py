"""What other modules ask of a label, whatever its type. A label describes itself, as a feature does."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, Self

from dpcore.numbers.fixed_point import Mask
from dpcore.records.coding import Coding, Labels
from dpcore.records.features.described import Cells, Policy, Tally
from dpcore.records.texts import Form

LABEL_POLICIES = ("refuse", "zero-vector")
"""What is done with a label that is missing or none of those that are known."""


Reads = Literal["numbers", "texts"]
"""How the cells of a column are read."""


@dataclass(frozen=True)
class EncodedLabel:
    """Labels of rows."""

    labels: Labels
    """In the label's coding, undefined where dropped."""
    dropped: Mask
    """(m,)."""
    tally: Tally
    """Of what policies changed."""


class DescribedLabel(ABC):
    """What other modules ask of a label, whatever its type."""

    type: ClassVar[str]
    """Its name in a schema."""
    has_type_field: ClassVar[bool]
    """Whether a schema writes the type: the first type has no such field."""
    compared: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Lists of texts that cells are compared with: no text of them may be in the other, or twice in one."""
    reals: ClassVar[tuple[str, ...]] = ()
    """The fields that are doubles."""
    reads: ClassVar[Reads] = "texts"
    """How its cells are read."""
    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is made of, its own first."""
        return (self.column,)

    @property
    def readings(self) -> tuple[Reads, ...]:
        """How the cells of each of `columns` are read."""
        return (self.reads,) * len(self.columns)

    @property
    @abstractmethod
    def version(self) -> int:
        """The first version of schemas that has it."""

    @property
    @abstractmethod
    def versioned_key(self) -> str:
        """The field that needs a version after the first."""

    @property
    @abstractmethod
    def coding(self) -> Coding:
        """How it is stored."""

    @property
    def classes(self) -> int:
        """The number of classes, if there are several; else 0."""
        return self.coding.classes

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in a few words."""

    @property
    @abstractmethod
    def policies(self) -> tuple[Policy, ...]:
        """What the schema does with its unusual cells, empty ones first."""

    @abstractmethod
    def encode(self, columns: Sequence[Cells], form: Form) -> EncodedLabel:
        """The labels of cells, of each of `columns`, texts in this form. Raises CellError if a policy refuses one."""

    @property
    def lenient(self) -> Self:
        """The same label, whose policies leave out every row that they refused."""
        refusing = {each.name: "zero-vector" for each in fields(self) if getattr(self, each.name) == "refuse"}  # type: ignore[arg-type]  # every type of label is a dataclass
        return replace(self, **refusing)  # type: ignore[type-var]  # as above
