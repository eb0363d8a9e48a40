"""The data that a party's node holds."""

import time
from dataclasses import dataclass
from typing import Self

from dpcore.errors import DataError
from dpcore.records.computation import PartySecret
from dpcore.records.held_back import RowKey
from parties.config import PartyConfig
from parties.data.dataset import Dataset, load
from radobase.files.schemas import load_schema
from radobase.logs import Log
from radobase.tables.tables import RowsRead

MOST_LOGGED = 20
"""The most changes of cells that are logged: those that lost most."""


class DataAwayError(DataError):
    """The table is not there now: its server starts, or its mount is late. A node's service manager tries again."""

    exit_code = 2


@dataclass(frozen=True)
class HeldData:
    """Rows, and what belongs to them. digest: `PartySecret.data_digest` of the rows. loaded_unix_s: when."""

    dataset: Dataset
    secret: PartySecret
    digest: str
    loaded_unix_s: float

    @classmethod
    def load(cls, config: PartyConfig, seed: bytes, node_log: Log, progress: RowsRead | None = None) -> Self:
        """Read the schema and the table that the configuration names. Logs counts, never a cell.

        seed: the party's secret. progress: as in parties.data.dataset.load. Raises DataAwayError if the table may be
        there later, SchemaError, DataError or ConfigurationError.
        """
        schema = load_schema(config.schema_file)
        row_key = RowKey(seed, config.federation, config.name, config.source)
        try:
            dataset = load(config.table, schema, progress, row_key=row_key, id_column=config.id_column)
        except DataError as error:
            node_log.error("data refused", reason=str(error))
            if error.may_pass:
                raise DataAwayError(str(error)) from error
            raise
        report, secret = dataset.report, PartySecret(seed, schema.digest)
        held = cls(dataset, secret, secret.data_digest(report.digest), time.time())
        node_log.info(
            "data loaded",
            rows=report.rows,
            zero_vectors=report.zero_vectors,
            positive=report.positive,
            negative=report.negative,
            digest=held.digest,
        )
        for warning in report.warnings:
            node_log.warning("data", warning=warning)
        for change in report.changes[:MOST_LOGGED]:
            node_log.info("cells changed", **change.to_dict())
        if len(report.changes) > MOST_LOGGED:
            node_log.info("cells changed", further=len(report.changes) - MOST_LOGGED, see="rado schema check")
        return held
