"""All generated pages, by their file."""

from pathlib import Path

from docs.generate.coalitions import coalitions_tables
from docs.generate.commands import commands_page
from docs.generate.configuration import configuration_page
from docs.generate.errors import error_pages
from docs.generate.marked import with_part
from docs.generate.metrics import metrics_page
from docs.generate.policies import policy_pages
from docs.generate.recipients import recipients_list

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference"
THREAT_MODEL = ROOT / "docs/threat-model-details.md"


def generated_pages() -> dict[Path, str]:
    """Text of each generated page. What is written by hand in an error's page or the threat model is read from it."""
    threats = THREAT_MODEL.read_text(encoding="utf-8")
    return {
        REFERENCE / "commands.md": commands_page(),
        REFERENCE / "configuration.md": configuration_page(),
        REFERENCE / "metrics.md": metrics_page(),
        **error_pages(ROOT),
        **{ROOT / "docs/policies" / f"{name}.md": text for name, text in policy_pages().items()},
        THREAT_MODEL: with_part(with_part(threats, "coalitions", coalitions_tables()), "recipients", recipients_list()),
    }
