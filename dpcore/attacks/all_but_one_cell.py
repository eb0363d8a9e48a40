"""The adversary that knows all but one cell: it reads signatures off the exact coordinates, then the cell.

Without noise, a table explains a rado if some of its rows add up to it (dpcore.attacks.known_rest, by meeting in the
middle). Of the two tables that differ in the cell, the true one explains every rado. The false one explains only those
that the row is not in, except by coincidence.

With noise on one column only, the others still give the signature, and
its row's cell with the noise is what is left. With noise on all coordinates no signature is found, and the linear
statistic is played (dpcore.attacks.membership).
"""

from collections.abc import Callable

import numpy as np

from dpcore.attacks.known_rest import KnownAllButOneBit, SubsetSums
from dpcore.attacks.membership import one_cell
from dpcore.attacks.outcome import Outcome, guessed
from dpcore.attacks.release import Integers, Release, Table, generator_of, with_cell
from dpcore.randomness.sources import RandomSource

NAME = "all-but-one-cell"
MOST_ROWS = 18
"""2^9 sums a half and rado, in each of hundreds of runs. `SubsetSums` takes up to 44."""
_MOST_EXPLAINED, _MOST_READ = 12, 200


def all_but_one_cell(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Which end of its range one cell is at. runs: releases, even."""
    noised = release.noised(table.records)
    if len(noised) == table.records.d or (noised and table.cell not in noised):
        return [one_cell(release, table, runs, random)]
    inside, _ = table.split(min(MOST_ROWS, table.rows - 1), generator_of(random))
    tables = [with_cell(inside, 0, table.cell, sign) for sign in (-1, 1)]
    edges = [release.edges(each) for each in tables]
    guess = _from_the_rest(release, noised, edges[1], table.cell) if noised else _by_explaining(edges)
    right = 0.0
    for run in range(runs):
        found = guess(release.drawn(tables[run % 2], random))
        right += 1.0 if found == (1 if run % 2 else -1) else 0.5 if found == 0 else 0.0
    note = f"the cell {table.cell_name} of one of {inside.rows} random rows"
    if inside.rows < table.rows - 1:
        note += f", as if the table had no more: the search takes twice as long for every two rows, here {MOST_ROWS}"
    if noised and release.rados and release.rados > _MOST_READ:
        note += f"; from {_MOST_READ} of the rados"
    if release.is_of_one_column:
        note += "; the design's epsilon is for that column's released values alone"
    return [guessed(NAME, release.name, release.rados, inside.rows, right / runs, runs, release.cell_promise, note)]


def _by_explaining(edges: list[Integers]) -> Callable[[Integers], int]:
    """The guess -1 or +1, the table that explains more rados; 0 if both explain as many."""
    sums = [SubsetSums(each) for each in edges]

    def guess(rados: Integers) -> int:
        first, second = (sum(len(each.matching(total)) > 0 for total in rados[:_MOST_EXPLAINED]) for each in sums)
        return int(np.sign(second - first))

    return guess


def _from_the_rest(release: Release, noised: tuple[int, ...], edges: Integers, cell: int) -> Callable[[Integers], int]:
    """The guess -1 or +1 by the noisy coordinate, once the others gave the signature; 0 without evidence."""
    kept = [column for column in range(edges.shape[1]) if column == cell or column not in noised]
    knows = KnownAllButOneBit(edges[:, kept], kept.index(cell), 0, 1 << release.fraction_bits)
    return lambda rados: knows.guess(np.ascontiguousarray(rados[:_MOST_READ, kept]))
