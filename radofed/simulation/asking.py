"""A simulated federation to query: try statistics, estimators of several rounds and evaluations on your own table.

It has the interface of a federation of nodes:

    federation = simulated_federation("patients.csv", label="outcome", positive="ill", parties=5)
    federation.statistic(['x["age"] >= 65'], epsilon=Fraction(1))
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.declared import declaration
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from dpcore.records.schema import Schema
from learner.federation import Federation
from radobase.files.schemas import load_schema
from radobase.tables.tables import as_source
from radofed.simulation.federation import SimulatedFederation
from radofed.simulation.fields import RunFields
from radofed.simulation.partitions import Partition
from radofed.simulation.run import party_names
from radofed.simulation.source import SimulatedSource
from radofed.simulation.table import read_table
from radofed.simulation.workers import LocalHosts
from wire.request_fields import KEY_BITS

_WHOLE_TABLE = 1
"""The fold number. In a simulation with folds, draws depend on the fold; here there is one fold, of all rows."""


def simulated_federation(
    data: Any,
    *,
    label: str | None = None,
    positive: str | Sequence[str] | None = None,
    schema: Schema | str | Path | None = None,
    parties: int = 10,
    partition: str = "iid",
    seed: int = 0,
    encrypt: bool = False,
    key_bits: int = KEY_BITS,
    **terms: Any,
) -> Federation:
    """Return a federation whose parties, in this process, hold the rows of a table.

    data: the path of a CSV (also gzipped) or Parquet file, an Arrow table or a data frame, read through `schema` (one,
    or its file), or through one that is inferred from the whole table with `label` and its `positive` values, which is
    not private. parties: 2 to 1,000; partition: as in `rado simulate`. seed: of the partition and all parties' draws,
    so the noise protects no one: two federations with one seed repeat each other's noise. The queries to one federation
    share no noise. encrypt: use Paillier and masks, which changes no answer. terms: as for
    `learner.federation.Federation`.

    There is neither a policy nor a ledger: only the budget of each oracle limits the queries. Raises
    ConfigurationError, SchemaError or DataError. A UserWarning names the column and the policy that made most rows
    unusable, if any are.
    """
    declaration(RunFields, "parties").check(parties)
    divided = Partition.parse(partition)
    schema = schema if schema is None or isinstance(schema, Schema) else load_schema(Path(schema))
    table = read_table(as_source(data), label=label, positive=positive, schema=schema, group_column=divided.column)
    if table.unusable is not None:
        warnings.warn(f"{table.unusable}: correct the table or the schema", stacklevel=2)
    parts = divided.divide(parties, table.records.labels > 0, table.groups, np.random.default_rng(seed))
    names = party_names(parties)
    secret = SecretKey.generate(SystemRandom(), bits=key_bits) if encrypt else None
    federation = SimulatedFederation(LocalHosts(table.records, seed, names), names, seed, secret)
    source = SimulatedSource(federation, parts, _WHOLE_TABLE, "asked")
    return Federation(source, table.schema, **terms)
