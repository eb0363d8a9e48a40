"""Samples in Prometheus's text format. The only file that uses prometheus_client, of the extra `metrics`."""

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from radobase.metrics import MetricKind, Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST
_FAMILIES = {
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.INFO: InfoMetricFamily,
}


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """The samples, grouped by metric."""
        families: dict[str, Metric] = {}
        for sample in self._samples:
            metric = sample.metric
            if metric.name not in families:
                # The library adds the suffixes of counters and of information.
                bare = metric.name.removesuffix("_total").removesuffix("_info")
                families[metric.name] = _FAMILIES[metric.kind](bare, metric.meaning, labels=())
            families[metric.name].add_sample(metric.name, dict(sample.labels), sample.value)
        yield from families.values()


def exposition(samples: Iterable[Sample]) -> bytes:
    """The page of metrics, of the type CONTENT_TYPE."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    return generate_latest(registry)
