"""The rados query: each record gives its edge vector to the rados whose signature selects it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.queries.base import Progress
from dpcore.rados.designs import Design, PlainDesign
from dpcore.rados.edges import Records, edges
from dpcore.rados.kernel import rado_sums
from dpcore.rados.signatures import draw, packed_width
from dpcore.randomness import RandomSource


@dataclass(frozen=True)
class RadosQuery:
    """n rados drawn from a design. Raises PlanError where rados < 1."""

    rados: int
    design: Design

    def __post_init__(self) -> None:
        if self.rados < 1:
            raise PlanError(f"{self.rados} rados: ask for at least one")

    def length(self, d: int) -> int:
        """Values n d: the rados one after the other."""
        return self.rados * d

    def largest_sum(self, max_rows: int, fraction_bits: int) -> int:
        """max_rows 2^fraction_bits: no coordinate of an edge is beyond [-1, 1], and a rado takes a row at most once."""
        return max_rows << fraction_bits

    def contribution(
        self, records: Records, fraction_bits: int, random: RandomSource, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """This party's part of each rado: int64 (n d,), in units of 2^-fraction_bits.

        Signatures are drawn in blocks and forgotten. progress is told (rados done, n) after each block. Raises what
        `dpcore.rados.signatures.draw` and `dpcore.rados.edges.edges` raise.
        """
        sums = np.empty((self.rados, records.d), dtype=np.int64)
        done = 0
        for selection in draw(self.design, records, self.rados, random):
            sums[done : done + len(selection)] = self.sums_of(records, fraction_bits, selection)
            done += len(selection)
            if progress is not None:
                progress(done, self.rados)
        return sums.reshape(-1)

    def sums_of(self, records: Records, fraction_bits: int, selection: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The same for given signatures: int64 (block, d). selection: packed bits (block, ceil(m/8)).

        Over integers the parties' sums add up to the pooled sum of the concatenated signatures, bit for bit (P6).
        Raises ShapeError where selection does not fit the records.
        """
        if selection.ndim != 2 or selection.shape[1] != packed_width(records.rows):
            raise ShapeError(f"selection has shape {selection.shape}: give (rados, {packed_width(records.rows)})")
        sensitive = None if isinstance(self.design, PlainDesign) else self.design.sensitive
        sums = np.zeros((selection.shape[0], records.d), dtype=np.int64)
        for first, block in edges(records, fraction_bits, sensitive):
            sums += rado_sums(block, selection[:, first // 8 : first // 8 + packed_width(len(block))])
        return sums

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The rados in real units, (n, d) float64: integers divided by 2^fraction_bits, exact below 2^53.

        Raises ShapeError where the total's length is no positive multiple of n.
        """
        return np.ldexp(self.integers(total).astype(np.float64), -fraction_bits)

    def integers(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rados in units of 2^-fraction_bits, (n, d). Raises ShapeError as `decode` does."""
        if total.ndim != 1 or total.size == 0 or total.size % self.rados:
            raise ShapeError(f"a total of shape {total.shape} is not {self.rados} rados: give n times d values")
        return total.reshape(self.rados, -1)
