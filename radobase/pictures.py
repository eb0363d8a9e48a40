"""Pictures that commands draw, by matplotlib, an extra."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.errors import ConfigurationError
from radobase.files.writing import BY_UMASK, write_durably

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = (".png", ".svg")
_DOTS_PER_INCH = 150
# A picture is for others to look at.
_MODE = BY_UMASK


def check_picture(file: Path) -> None:
    """Raise ConfigurationError if no picture can be drawn to `file`, before anything is computed."""
    if file.suffix.lower() not in _KINDS:
        raise ConfigurationError(f"{file}: a picture is a PNG or SVG file; give a name that ends in .png or .svg")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file.parent}: not a directory; make it first")
    try:
        import matplotlib  # noqa: F401, ICN001, PLC0415  (an extra, and slow to import)
    except ImportError as error:
        raise ConfigurationError(
            "a picture needs matplotlib, which is not installed: python deploy/install.py bench"
        ) from error


def write_picture(figure: "Figure", file: Path) -> None:
    """Write a figure as the kind of picture that the file's name says. Raises ConfigurationError."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix.lower().removeprefix("."), dpi=_DOTS_PER_INCH)
    try:
        write_durably(file, drawn.getvalue(), mode=_MODE)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written ({error.strerror}); choose another place") from error
