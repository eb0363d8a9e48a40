"""Plain rados: uniform signatures, no noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpcore.accounting.protection import CountProtection, Protection, Scope, Setting, Unprotected
from dpcore.errors import PlanError
from dpcore.rados.designs.base import RadoDesign
from dpcore.rados.distribution import RadoDistribution
from dpcore.records.schema import Schema


@dataclass(frozen=True)
class PlainDesign(RadoDesign):
    """Signatures uniform over all of {-1, +1}^m. Protects only boolean coordinates, the marginal of each.

    Sensitivity: one flipped value shifts such a coordinate by one in each rado, and the count behind it is Binomial(m,
    1/2) for any data. Proof: dpcore.accounting.dp_feat.

    Raises PlanError if a coordinate is out of range or not in order.
    """

    name: ClassVar[str] = "plain"

    booleans: tuple[int, ...] = ()
    """The coordinates coded -1/+1, ascending."""

    def __post_init__(self) -> None:
        if list(self.booleans) != sorted(set(self.booleans)) or min(self.booleans, default=0) < 0:
            raise PlanError(f"the boolean coordinates {self.booleans} must ascend from 0 or more")

    def words(self) -> str:
        """See `RadoDesign`."""
        return "plain"

    @property
    def coded(self) -> tuple[int, ...]:
        """See `RadoDesign`."""
        return self.booleans

    @property
    def is_calibrated(self) -> bool:
        """See `RadoDesign`."""
        return False

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """See `RadoDesign`."""
        return RadoDistribution()

    @property
    def scope(self) -> Scope:
        """See `RadoDesign`."""
        return "marginal" if self.booleans else "none"

    @property
    def is_promised(self) -> bool:
        """See `RadoDesign`."""
        return False

    def protection(self, rados: int, setting: Setting) -> Protection:
        """See `RadoDesign`. The design requires no bound, so nothing fails if these rows give none."""
        return CountProtection(rados, is_promised=self.is_promised) if self.booleans else Unprotected()

    def features(self, schema: Schema) -> tuple[str, ...]:
        """The booleans that the design names: only for them does the count include rows that are not usable."""
        return tuple(schema.coordinates[coordinate] for coordinate in self.booleans)
