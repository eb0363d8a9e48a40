"""The rehearsal: every attack on every design, over a party's own rows, beside what the design's epsilon allows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, TypeVar

from dpcore.accounting.protection import GaussianProtection, Setting
from dpcore.attacks import all_but_one_cell, candidates, components, hidden_subset_sum, sparse
from dpcore.attacks.all_but_one_cell import all_but_one_cell as play_all_but_one_cell
from dpcore.attacks.candidates import subsumption
from dpcore.attacks.components import ica
from dpcore.attacks.hidden_subset_sum import hidden_subset_sum as play_hidden_subset_sum
from dpcore.attacks.membership import membership
from dpcore.attacks.options import RehearsalFields
from dpcore.attacks.outcome import NO_PROMISE, Outcome, Promise
from dpcore.attacks.release import ModelRelease, MomentsRelease, RadosRelease, Release, Table, chosen, generator_of
from dpcore.attacks.sparse import sparse as play_sparse
from dpcore.errors import ConfigurationError
from dpcore.queries.moments import MomentsQuery, edge_multiplier, usual_norm
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import (
    Design,
    FixedSupportDesign,
    GaussianDesign,
    dp_feat_design,
    joint_design,
    plain_design,
)
from dpcore.randomness.noise import SMALLEST_SHARE_SIGMA
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip
from dpcore.records.records import Records
from dpcore.records.schema import Schema

Play: TypeAlias = Callable[[Release, Table, int, RandomSource], list[Outcome]]
Kind = TypeVar("Kind", RadosQuery, MomentsQuery)

LEAST_ROWS, MOST_ROWS = 4, 5000
"""Usable rows that a rehearsal takes."""
MOST_COORDINATES = 300
_RADO_BITS, _MOMENT_BITS = 16, 10
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Attack:
    """An attack, as the rehearsal plays it."""

    adversary: str
    """What the adversary has."""
    play: Play
    guesses: bool = False
    """Whether a run is one guess. Otherwise a run is a whole recovery, and few are played."""


ATTACKS: dict[str, Attack] = {
    components.NAME: Attack("has the rados alone", ica),
    hidden_subset_sum.NAME: Attack("has the rados alone", play_hidden_subset_sum),
    all_but_one_cell.NAME: Attack("knows all cells but one", play_all_but_one_cell, guesses=True),
    "membership": Attack("knows all rows but one, and two candidates for it", membership, guesses=True),
    candidates.NAME: Attack("has a list of people, half of whom are in the table", subsumption),
    sparse.NAME: Attack("has the rados and their signatures", play_sparse),
}


def rehearsed(
    fields: RehearsalFields,
    records: Records,
    schema: Schema,
    random: RandomSource,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Outcome]:
    """Play every attack on every release. progress: called with what is played next.

    Raises ConfigurationError if the rows are too few or too many, PlanError if no noise suffices for epsilon.
    """
    table = table_of(records, schema)
    for release in releases(schema, table, fields.numbers_of_rados, fields.epsilon, fields.delta):
        for name in fields.attacks:
            attack = ATTACKS[name]
            if progress is not None:
                progress(f"{name} on {release.name}" + (f", {release.rados} rados" if release.rados else ""))
            # Half of the guesses are about each table.
            runs = fields.guesses // 2 * 2 if attack.guesses else fields.recoveries
            yield from attack.play(release, table, runs, random)


def table_of(records: Records, schema: Schema) -> Table:
    """The usable rows, with the cell that adversaries wonder about. Raises ConfigurationError."""
    usable = int(records.usable.sum())
    if usable < LEAST_ROWS:
        raise ConfigurationError(
            f"{usable} usable {'row' if usable == 1 else 'rows'}: a rehearsal compares tables that differ in one of "
            f"their rows and needs at least {LEAST_ROWS}; a release over fewer rows gives them away"
        )
    if usable > MOST_ROWS:
        raise ConfigurationError(
            f"{usable} usable rows: attacks take at most {MOST_ROWS}; play on a random part of them, --rows {MOST_ROWS}"
        )
    if records.d > MOST_COORDINATES:
        raise ConfigurationError(
            f"{records.d} coordinates: attacks take at most {MOST_COORDINATES}; rehearse with a schema of fewer columns"
        )
    cell = _cell(schema)
    return Table.of(records, cell, repr(schema.coordinates[cell]))


def part_of(records: Records, rows: int, random: RandomSource) -> Records:
    """A random part of the usable rows, `rows` of them, or all if there are no more."""
    usable = records.usable.nonzero()[0]
    return chosen(records, generator_of(random).permutation(usable)[:rows])


def _cell(schema: Schema) -> int:
    """The coordinate that the adversary wonders about: the first boolean one, else the first number, else the first."""
    names = [*_alone(schema), *schema.boolean_coordinates, *(each.name for each in schema.numbers)]
    return schema.coordinate(names[0]) if names else 0


def _alone(schema: Schema) -> list[str]:
    """The boolean coordinates from whose columns no other coordinate derives."""
    return [name for name in schema.boolean_coordinates if len(schema.derived_from(str(schema.sources(name)))) == 1]


def releases(
    schema: Schema, table: Table, rados: Sequence[int], epsilon: Fraction, delta: Fraction
) -> Iterator[Release]:
    """The releases of every design over this schema, with noise for one honest party. Raises PlanError."""
    promise = Promise(epsilon, delta)
    clip = Clip(usual_norm(schema), schema.bias)
    column = str(schema.sources(schema.coordinates[table.cell]))
    designs: list[tuple[str, Design, Promise, Promise]] = [("plain", plain_design(schema), NO_PROMISE, NO_PROMISE)]
    if alone := _alone(schema):
        designs.append(("dp-feat", dp_feat_design(schema, alone[:1]), NO_PROMISE, NO_PROMISE))
    designs += [
        ("dp-feat, joint", joint_design(schema, column, SMALLEST_SHARE_SIGMA), NO_PROMISE, promise),
        ("fixed-support", FixedSupportDesign(_HALF, clip, 0), NO_PROMISE, NO_PROMISE),
        ("fixed-support, noised", FixedSupportDesign(_HALF, clip, SMALLEST_SHARE_SIGMA), promise, promise),
        ("gaussian", GaussianDesign(clip, SMALLEST_SHARE_SIGMA), promise, promise),
    ]
    for name, design, rows, cell in designs:
        for n in rados:
            kind = RadosQuery(n, design)
            if cell.epsilon is not None:
                kind = calibrated(kind, table, _RADO_BITS, epsilon, delta)
            yield RadosRelease(name, _RADO_BITS, rows, cell, kind=kind)
    bare = MomentsQuery(clip, edge_multiplier(clip.norm_bound, _MOMENT_BITS), SMALLEST_SHARE_SIGMA)
    moments = calibrated(bare, table, _MOMENT_BITS, epsilon, delta)
    yield MomentsRelease("moments", _MOMENT_BITS, promise, promise, kind=moments)
    yield ModelRelease("model of moments", _MOMENT_BITS, promise, promise, kind=moments)


def calibrated(kind: Kind, table: Table, fraction_bits: int, epsilon: Fraction, delta: Fraction) -> Kind:
    """The kind with the least noise for (epsilon, delta), all of it from one party. Raises PlanError."""
    protection = kind.protection(Setting(table.records.d, fraction_bits, 1))
    assert isinstance(protection, GaussianProtection)
    return kind.with_noise(protection.least_share((table.rows,), epsilon, delta))
