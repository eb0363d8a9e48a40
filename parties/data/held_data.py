"""The data that a party's node holds."""

import time
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Self

from dpcore.errors import DataError
from dpcore.records.computation import PartySecret
from dpcore.records.features.labels import MOST_CLASSES
from dpcore.records.held_back import RowKey
from parties.config import PartyConfig
from parties.data.dataset import Dataset, load, place_of, recode_of
from radobase.logs import Log
from radobase.schema_files import load_shared
from radobase.tables.tables import RowsRead
from radobase.warm_workers import WarmWorkers

_NAME_BYTES = 16
MOST_LOGGED = 20
"""The most changes of cells that are logged: those that lost most."""


class DataAwayError(DataError):
    """The table is not there now: its server starts, or its mount is late. A node's service manager tries again."""

    exit_code = 2


@dataclass(frozen=True)
class HeldData:
    """Rows, and what belongs to them."""

    dataset: Dataset
    secret: PartySecret
    digest: str
    """`PartySecret.data_digest` of the rows."""
    loaded_unix_s: float
    """When."""
    name: str = field(default_factory=lambda: token_hex(_NAME_BYTES))
    """A random one for each load, also of rows that are as before: whether they are does not show in the ledger."""

    @classmethod
    def load(
        cls,
        config: PartyConfig,
        seed: bytes,
        node_log: Log,
        progress: RowsRead | None = None,
        workers: WarmWorkers | None = None,
    ) -> Self:
        """Read the schema, the recode file and the table that the configuration names. Logs counts, never a cell.

        seed: the party's secret. progress: as in parties.data.dataset.load. workers: as in `place_of`. Raises
        DataAwayError if the table may be there later, SchemaError, DataError or ConfigurationError.
        """
        schema = load_shared(config.schema_file)
        row_key = RowKey(seed, config.federation, config.name, config.source)
        try:
            ids, epochs = config.id_column, config.epoch_column
            recode = recode_of(config, schema)
            columns: dict[str, Any] = {"id_column": ids, "epoch_column": epochs, "recode": recode}
            place = place_of(config, node_log, workers)
            dataset = load(config.table, schema, progress, row_key=row_key, place=place, **columns)
        except DataError as error:
            node_log.error("data refused", reason=str(error))
            if error.may_pass:
                raise DataAwayError(str(error)) from error
            raise
        report, secret = dataset.report, PartySecret(seed, dataset.schema.digest)
        held = cls(dataset, secret, PartySecret(seed, schema.digest).data_digest(report.digest), time.time())
        node_log.info(
            "data loaded",
            rows=report.rows,
            zero_vectors=report.zero_vectors,
            positive=report.positive,
            negative=report.negative,
            **({"class_rows": dict(report.class_rows)} if 0 < len(report.class_rows) <= MOST_CLASSES else {}),
            **({"usable_by_label": report.usable_by_label} if report.others else {}),
            **({"recoded": dict(report.recoded)} if report.recoded else {}),
            digest=held.digest,
        )
        for warning in report.warnings:
            node_log.warning("data", warning=warning)
        found = report.all_changes
        for change in found[:MOST_LOGGED]:
            node_log.info("cells changed", **change.to_dict())
        if len(found) > MOST_LOGGED:
            node_log.info("cells changed", further=len(found) - MOST_LOGGED, see="rado schema check")
        return held
