"""A party's records on disk in place of memory: a file that has no name, mapped into memory page by page, or read so.

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


class FeatureFile:
    """The features of parts of a table, in a file of this directory that is read and written piece by piece."""

    def __init__(self, directory: Path) -> None:
        """Raises DataError if no file can be made there."""
        self._directory, self._end = directory, 0
        self._free: list[tuple[int, int]] = []
        """Room that was given back: the first byte, and the first after it."""
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                self._descriptor = os.dup(file.fileno())
        except OSError as error:
            raise _fault(directory, error) from error

    def room_for(self, rows: int, d: int) -> int:
        """The first byte of room for rows (rows, d) int32. Raises DataError if the disk has none."""
        first, size_bytes = self._end, _size(rows, d)
        for place, (begin, end) in enumerate(self._free):
            if size_bytes <= end - begin:
                self._free[place : place + 1] = [(begin + size_bytes, end)] if size_bytes < end - begin else []
                return begin
        try:
            # All of it now, so that writing finds its room.
            os.posix_fallocate(self._descriptor, first, max(1, size_bytes))
        except OSError as error:
            raise _fault(self._directory, error) from error
        self._end += size_bytes
        return first

    def give_back(self, first: int, rows: int, d: int) -> None:
        """Have this room for other rows: parts move between workers as long as a node runs."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self._free, (first, first + _size(rows, d))]):
            if merged and merged[-1][1] == begin:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((begin, end))
        self._free = merged

    def write(self, first: int, features: NDArray[np.int32]) -> None:
        """Write rows from this byte on. Raises DataError."""
        left = np.ascontiguousarray(features).data.cast("B")
        try:
            while left:
                written = os.pwrite(self._descriptor, left, first)
                first, left = first + written, left[written:]
        except OSError as error:
            raise _fault(self._directory, error) from error

    def read(self, first: int, features: NDArray[np.int32]) -> None:
        """Fill rows from this byte on. Raises DataError."""
        left = features.data.cast("B")
        try:
            while left:
                if not (found := os.preadv(self._descriptor, [left], first)):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                first, left = first + found, left[found:]
        except OSError as error:
            raise _fault(self._directory, error) from error

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _size(rows: int, d: int) -> int:
    return rows * d * np.dtype(np.int32).itemsize


def _fault(directory: Path, error: OSError) -> DataError:
    """The error about a directory that keeps rows."""
    reason = os.strerror(error.errno or 0)
    return DataError(f"cannot keep rows ({reason}); check the directory and its room", file=str(directory))


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
