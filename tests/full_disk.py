"""What fills the file system of the fixture `small_disk`."""

import os
from contextlib import suppress


def fill(disk):
    for size in (65536, 4096, 1):
        with (disk / f"filling-{size}").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(size))
    assert os.statvfs(disk).f_bavail == 0
