"""The room that a node's spool has."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from radobase.watching.metrics import DISK_FREE, DISK_SIZE, SPOOL, SPOOL_QUOTA, Sample


@dataclass(frozen=True)
class Room:
    """Used and allowed bytes of a spool, and free bytes and size of its disk."""

    used_bytes: int
    quota_bytes: int
    disk_free_bytes: int
    disk_bytes: int

    @classmethod
    def of(cls, directory: Path, used_bytes: int, quota_bytes: int) -> Self:
        """Reads the disk. Raises OSError."""
        disk = shutil.disk_usage(directory)
        return cls(used_bytes, quota_bytes, disk.free, disk.total)

    def lacks(self, needed_bytes: int) -> bool:
        """Whether this many bytes more do not fit."""
        return needed_bytes > min(self.quota_bytes - self.used_bytes, self.disk_free_bytes)

    def samples(self) -> list[Sample]:
        """All four."""
        return [
            Sample(SPOOL, self.used_bytes),
            Sample(SPOOL_QUOTA, self.quota_bytes),
            Sample(DISK_FREE, self.disk_free_bytes),
            Sample(DISK_SIZE, self.disk_bytes),
        ]
