"""Every alert has a metric that nodes export, a page that says what to do, and a test that fires it."""

import json
import re

import pytest

from coordinator.local_control import METRICS as COORDINATOR_METRICS
from parties.local_control import METRICS as PARTY_METRICS
from radobase.metrics import MetricKind
from tests.radobase.alert_rules import ROOT, metrics_of, rules
from tests.radobase.test_alerts import FIRED

METRICS = {metric.name: metric for metric in (*PARTY_METRICS, *COORDINATOR_METRICS)}
RUNBOOKS = ROOT / "docs/runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
# Each has a bounded number of values, which no member chooses: ids, names and texts are none of them. Studies are those
# that the party's own policy lists.
LABELS = {"study", "state", "version", "role", "reason", "step", "scope", "phase", "outcome", "limit", "method"}
UNITS = ("_seconds", "_bytes", "_ratio", "_info")
# Numbers of things have no unit; `rado_ready` and `rado_not_ready` are 0 or 1.
WITHOUT_UNIT = {"rado_rows", "rado_ready", "rado_not_ready", "rado_queries", "rado_members", "rado_members_seen"}
WITHOUT_UNIT |= {"rado_decisions_waiting", "rado_proposals_waiting"}


def test_every_alert_is_fired_by_a_test_and_every_such_test_has_its_alert():
    assert set(FIRED) == set(rules())


@pytest.mark.parametrize("alert", rules())
def test_an_alert_reads_metrics_that_are_exported(alert):
    read = metrics_of(rules()[alert]["expr"])
    # `up` is Prometheus's own: whether the scrape succeeded.
    assert read
    assert read <= METRICS.keys() | {"up"}


@pytest.mark.parametrize("alert", rules())
def test_an_alert_has_its_page(alert):
    page = RUNBOOKS / f"{alert}.md"
    assert rules()[alert]["annotations"]["runbook"] == page.relative_to(ROOT).as_posix()
    text = page.read_text()
    assert text.startswith(f"# {alert}\n")
    parts = dict(re.findall(r"^## (.*)\n\n((?:(?!^## ).*\n?)+)", text, re.MULTILINE))
    assert list(parts) == SECTIONS
    assert all(len(part.split()) >= 8 for part in parts.values())


def test_pages_are_of_alerts_and_stand_in_the_table_of_contents():
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"index"}
    assert pages == set(rules())
    listed = re.search(r"```\{toctree\}\n(.*?)```", (RUNBOOKS / "index.md").read_text(), re.DOTALL)
    assert set(listed[1].split()) == pages
    assert "../runbooks/index" in (ROOT / "docs/reference/index.md").read_text()


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_metrics_are_named_as_prometheus_asks_and_their_labels_are_bounded(metric):
    assert (metric.kind is MetricKind.COUNTER) == metric.name.endswith("_total")
    assert (metric.kind is MetricKind.INFO) == metric.name.endswith("_info")
    assert set(metric.labels) <= LABELS
    if metric.kind is not MetricKind.COUNTER and metric.name not in WITHOUT_UNIT:
        assert metric.name.endswith(UNITS)


def test_metrics_of_both_roles_are_the_same_or_mean_each_role_s_own():
    by_name = {metric.name: metric for metric in PARTY_METRICS}
    for metric in COORDINATOR_METRICS:
        if (other := by_name.get(metric.name)) is not None:
            assert (other.kind, other.labels) == (metric.kind, metric.labels)


def test_the_dashboard_shows_metrics_that_are_exported():
    panels = json.loads((ROOT / "deploy/grafana/radofed.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 0
    for panel in panels:
        for target in panel["targets"]:
            read = metrics_of(target["expr"])
            assert read
            assert read <= METRICS.keys()
            labels = {name for metric in read for name in METRICS[metric].labels}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels | {"instance"}
