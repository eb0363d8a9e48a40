"""The reference of metrics and of the reasons why a node is not ready, from the code that exports them."""

from collections.abc import Iterable

from coordinator.local_control import METRICS as COORDINATOR_METRICS
from docs.generate.tables import code, table
from parties.local_control import METRICS as PARTY_METRICS
from radobase.metrics import Metric, Reason

INTRODUCTION = """# Metrics

This page is generated from the code that exports them.

A party or a coordinator whose configuration file has a section `[watch]` serves `/metrics` in Prometheus's text format,
`/healthz` and `/readyz`. [Operating](../operating.md#metrics-and-alerts) says how to read them, and the
[runbooks](../runbooks/index.md) what to do when an alert fires.

A metric tells the node's administrator nothing new: the last column names where the same can be read. No metric has
the id of a query, a member's name, a column or a text that a member chose as a label. `rado_attempts_total` and the
remaining ratio change when a query is answered. So a person who reads a
party's metrics sees when it answers, as in its log.
"""
REASONS = """## Reasons

`/readyz` answers with status 200 and `{"ready": true, "reasons": []}`, or with status 503 and the reasons, such as
`{"ready": false, "reasons": [{"code": "PAUSED", "sentence": "..."}]}`. Codes do not change; sentences may.
"""


def metrics_page() -> str:
    """The page of all metrics and reasons."""
    return "\n".join(
        [
            INTRODUCTION,
            f"## Party\n\n{_metrics(PARTY_METRICS)}",
            f"## Coordinator\n\n{_metrics(COORDINATOR_METRICS)}",
            REASONS,
            table(("code", "the node is not ready because"), ((code(each.value), each.sentence) for each in Reason)),
        ]
    )


def _metrics(metrics: Iterable[Metric]) -> str:
    header = ("metric", "type", "labels", "meaning", "known from")
    return table(
        header,
        (
            (code(each.name), each.kind.value, ", ".join(map(code, each.labels)), each.meaning, each.known)
            for each in metrics
        ),
    )
