"""What the server counts, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .shelf import Shelf

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
GAUGES = {
    "running": "Replies that are being made",
    "waiting": "Replies that wait for a place",
    "pages": "Pages of the cache",
    "pages_held": "Pages that running replies hold",
}
COUNTERS = {
    "runs": "Runs of the model",
    "computed": "Tokens run through the model",
    "reused": "Tokens whose keys and values were found in the cache",
    "generated": "Tokens of replies",
    "preempted": "Replies given up for a while because pages were short",
}


@dataclass(frozen=True)
class EngineState:
    """A collector that asks the engines when it is read."""

    shelf: Shelf

    def collect(self) -> Iterator[Metric]:
        load = self.shelf.load_now()
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"luminal_{name}", text, value=getattr(load, name))
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"luminal_{name}", text, value=getattr(load, name))


class Metrics:
    """Counts of one server."""

    def __init__(self, shelf: Shelf) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(EngineState(shelf))
        here = self._registry
        self.requests = Counter(
            "luminal_requests", "Requests by path and status", ["path", "status"], registry=here
        )
        self.cancelled = Counter("luminal_cancelled", "Clients that left early", registry=here)
        self.first = Histogram(
            "luminal_first_token_seconds", "To the first token", buckets=SECONDS, registry=here
        )
        self.whole = Histogram(
            "luminal_reply_seconds", "To the end of a reply", buckets=SECONDS, registry=here
        )

    def text(self) -> bytes:
        """All counts; lines as Prometheus reads them."""
        return generate_latest(self._registry)
