"""Progress callbacks of long computations."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Progress callback `(done, total)`. It may raise to stop the work."""
