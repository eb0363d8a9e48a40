"""A party's sums over rows on its own Ray cluster, for tables that are too large for one machine.

Sends runs of whole blocks of rows to workers, which return the sum of each run. The sums are integers: the total
equals that of threads of this machine, bit for bit. A run that is lost with a worker is sent again.

Anyone with access to the cluster can read rows, rado signatures and noise: only the party may have access.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, SlotOverflowError
from dpcore.numbers.progress import Progress
from dpcore.records.computation import RowPart, add_exactly, sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records
from parties.config import PartyCluster
from parties.data.rows_elsewhere import sum_elsewhere
from radobase.cluster_jobs import ITEM_BYTES, ClusterError, ClusterJob, check_in_background
from radobase.logs import Log
from radobase.ray_cluster import require_ray

_ROW_BYTES_BESIDE_FEATURES = 9
"""At most: labels of 8 bytes, and whether the row is usable."""


class ClusterRowSums:
    """A dpcore.records.computation.RowSums. Raises ConfigurationError if Ray is not installed."""

    def __init__(self, settings: PartyCluster, log: Log) -> None:
        self._settings, self._log = settings, log
        if settings.reads_table:
            # Loading the table shows it.
            require_ray()
        else:
            check_in_background(settings, log)

    def __call__(self, part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
        """See RowSums. If the cluster fails, logs it and sums on this machine. Raises DataError if a file changed."""
        if records.are_elsewhere:
            return sum_elsewhere(part, records, progress)
        if records.rows < self._settings.from_rows:
            return sum_on_threads(part, records, progress)
        try:
            return self._sum(part, records, progress)
        except (ClusterError, ConfigurationError) as error:
            self._log.warning("cluster failed, summing on this machine", rows=records.rows, reason=str(error))
            return sum_on_threads(part, records, progress)

    def _sum(self, part: RowPart, records: Records, progress: Progress | None) -> NDArray[np.int64]:
        row_bytes = records.features.itemsize * records.features.shape[1] + _ROW_BYTES_BESIDE_FEATURES
        run_rows = BLOCK_ROWS * max(1, ITEM_BYTES // (BLOCK_ROWS * row_bytes))

        def load(number: int) -> tuple[Any, ...]:
            # Workers get only the values of rows that count (dpcore.records.held_back).
            run = records.between(number * run_rows, (number + 1) * run_rows).zeroed()
            return number * run_rows, np.asarray(run.features), run.labels, run.usable, run.feature_map, run.coding

        def report() -> None:
            if progress is not None:
                progress(done, records.rows)

        total = np.zeros(part.shape, dtype=np.int64)
        done = 0
        with ClusterJob(self._settings, sum_of_run, part) as job:
            for number, added in job.results(-(-records.rows // run_rows), load, report):
                if not isinstance(added, np.ndarray) or added.dtype != np.int64 or added.shape != total.shape:
                    raise ClusterError("a worker returned no sum of the query's shape")
                try:
                    add_exactly(total, added)
                except SlotOverflowError as error:
                    raise ClusterError("a worker returned a sum that is impossible for these rows") from error
                done += min(run_rows, records.rows - number * run_rows)
                report()
        return total


def sum_of_run(part: RowPart, payload: tuple[Any, ...]) -> NDArray[np.int64]:
    """The sum of a run of rows, computed by a worker. payload: (first row, fields of Records)."""
    first_row, *fields = payload
    total = np.zeros(part.shape, dtype=np.int64)
    part.add(total, Records(*fields), first_row)
    return total
