"""A party's records on disk in place of memory: a file that has no name, mapped into memory page by page.

The operating system reads a page when it is needed and drops it when memory is short, so a table may be larger than
memory.

Only the node's user may open the file, and no program can find it: it is created without a name (O_TMPFILE), or loses
it at once. Its space is free again when the node ends, however it ends.
"""

import errno
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RowsOnDisk:
    """The features of one table, in a file of this directory. One table for each object."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def resized(self, features: NDArray[np.int32] | None, rows: int, d: int) -> NDArray[np.int32]:
        """(rows, d) int32 on disk, with the rows of `features`, which this returned before, if there are any.

        Raises DataError if the disk has no room.
        """
        del features
        size_bytes = max(1, rows * d * np.dtype(np.int32).itemsize)
        try:
            if self._descriptor is None:
                with tempfile.TemporaryFile(dir=self._directory) as file:
                    self._descriptor = os.dup(file.fileno())
            # All of it now: a page that finds no room later would end the process.
            os.posix_fallocate(self._descriptor, 0, size_bytes)
            os.ftruncate(self._descriptor, size_bytes)
            mapped = mmap.mmap(self._descriptor, size_bytes)
        except OSError as error:
            if error.errno not in _FULL:
                raise DataError(
                    f"cannot keep rows ({os.strerror(error.errno or 0)}); check the directory, or set "
                    "rows_on_disk = false",
                    file=str(self._directory),
                ) from error
            raise DataError(
                f"has no room for rows of {size_bytes} bytes; free some, or move the directory to a larger disk",
                file=str(self._directory),
            ) from error
        return np.frombuffer(mapped, dtype=np.int32, count=rows * d).reshape(rows, d)

    def __del__(self) -> None:
        # What is mapped stays until its last array is gone.
        if self._descriptor is not None:
            os.close(self._descriptor)
