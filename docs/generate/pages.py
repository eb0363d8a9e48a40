"""All generated pages, by their file."""

from pathlib import Path

from docs.generate.commands import commands_page
from docs.generate.configuration import configuration_page
from docs.generate.errors import error_pages
from docs.generate.metrics import metrics_page

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference"


def generated_pages() -> dict[Path, str]:
    """Text of each generated page. The hand-written part of an error's page is read from its present file."""
    return {
        REFERENCE / "commands.md": commands_page(),
        REFERENCE / "configuration.md": configuration_page(),
        REFERENCE / "metrics.md": metrics_page(),
        **error_pages(ROOT),
    }
