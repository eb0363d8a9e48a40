"""`rado simulate --attack`: what a party of a simulated federation would give away."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpcore.attacks.options import RehearsalFields
from dpcore.attacks.rehearsal import MOST_ROWS
from dpcore.attacks.release import chosen
from dpcore.declared import declarations, first_changed, names_of
from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.features import two_classes
from parties.rehearsal import Rehearsed
from radobase.schema_files import load_shared
from radofed.simulation.simulate_options import SimulateOptions
from radofed.simulation.table import Partition, read_table

EVERY_ATTACK = "all"
_TAKEN = frozenset(
    ("data", "parties", "schema", "label", "positive", "partition", "seed", "epsilon", "delta", "rados", "attack")
) | {"picture"}


def attacked(options: SimulateOptions, note: Callable[[str], None]) -> Rehearsed:
    """Play the named attacks on the rows of the smallest party. All designs are played.

    Raises ConfigurationError if an option has no meaning here, and as `read_table` and `Rehearsed.of` do.
    """
    names = [field.name for field in declarations(SimulateOptions) if field.name not in _TAKEN]
    if stray := first_changed(options, names):
        raise ConfigurationError(f"--attack plays every design and trains nothing: leave out {stray}")
    fields = RehearsalFields(
        attack=() if EVERY_ATTACK in options.attack else options.attack,
        rados=() if options.rados is None else (options.rados,),
        delta=options.delta,
        epsilon=options.epsilon or Fraction(1),
    )
    partition = Partition.parse(options.partition)
    table = read_table(
        options.data,
        label=options.label,
        positive=names_of(options.positive) or None,
        schema=None if options.schema is None else load_shared(options.schema),
        group_column=partition.column,
    )
    two_classes(table.schema.label, "a rehearsed attack")
    for sentence in table.notes:
        note(sentence)
    positive, generator = table.records.labels > 0, np.random.default_rng(options.seed)
    parts = partition.divide(options.parties, positive, table.groups, generator)
    smallest = min(parts, key=len)
    records = chosen(table.records, smallest)
    return Rehearsed.of(fields, records, table.schema, SeededRandom(options.seed), rows=MOST_ROWS, progress=note)
