"""Metrics of a node as Prometheus reads them, and health as probes do."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from radobase.local_status import fetch

LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Scrape:
    """Values of one scrape, by metric and labels. up: whether the node answered, as Prometheus notes it."""

    values: dict[tuple[str, frozenset], float] = field(default_factory=dict)
    up: bool = False

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.values}

    def series(self, name: str, labels: dict[str, str] | None = None) -> dict[frozenset, float]:
        """All series of a metric that have these labels, by their labels."""
        if name == "up":
            return {frozenset(): float(self.up)}
        wanted = frozenset((labels or {}).items())
        return {
            found: value for (found_name, found), value in self.values.items() if found_name == name and wanted <= found
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The only value of a metric with these labels."""
        (value,) = self.series(name, labels).values()
        return value


def read_page(text: str) -> Scrape:
    families = text_string_to_metric_families(text)
    found = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
    assert not any(math.isnan(value) for value in found.values())
    return Scrape(found, up=True)


def scrape(place: Path | tuple[str, int]) -> Scrape:
    """One scrape; one without values if the node does not answer."""
    try:
        status, content = fetch(place, "/metrics", limit_bytes=LIMIT_BYTES)
    except OSError:
        return Scrape()
    assert status == 200
    return read_page(content.decode())


def ready(place: Path | tuple[str, int]) -> tuple[int, list[str]]:
    """Status and reason codes of /readyz."""
    status, content = fetch(place, "/readyz", limit_bytes=LIMIT_BYTES)
    found = json.loads(content)
    assert found["ready"] is (status == 200)
    return status, [reason["code"] for reason in found["reasons"]]
