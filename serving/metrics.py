"""What /metrics tells Prometheus.

The queue is full when `serving_queued_tokens` reaches --max_queued_tokens: what to scale on.
"""

import functools
from typing import Callable, Mapping

import prometheus_client

from serving.model import ServedModel

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_SECONDS = (.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30)


class Metrics:
    """Counts the requests to some models.

    Args:
        models: name → model.
        in_flight: the number of requests that are being answered.
    """

    def __init__(self, models: Mapping[str, ServedModel], in_flight: Callable[[], float]):
        self._registry = prometheus_client.CollectorRegistry()
        labels = ("model", "route")
        self._requests = prometheus_client.Counter(
            "serving_requests", "Requests that were answered.", (*labels, "status"),
            registry=self._registry)
        self._seconds = prometheus_client.Histogram(
            "serving_request_seconds", "Seconds from a whole request to its answer.", labels,
            buckets=_SECONDS, registry=self._registry)
        self._texts = prometheus_client.Counter(
            "serving_texts", "Texts, or pairs of texts, that were predicted.", labels,
            registry=self._registry)
        prometheus_client.Gauge(
            "serving_requests_in_flight", "Requests that are being answered.",
            registry=self._registry).set_function(in_flight)
        queued = prometheus_client.Gauge(
            "serving_queued_tokens", "Tokens that wait, padding included.", ["model"],
            registry=self._registry)
        for name, model in models.items():
            queued.labels(name).set_function(
                functools.partial(getattr, model.batcher, "queued_tokens"))

    def count(self, model: str, route: str, status: int, seconds: float, num_texts: int) -> None:
        """Counts a request; `route` is one of ours, since each new one takes memory."""
        self._requests.labels(model, route, str(status)).inc()
        self._seconds.labels(model, route).observe(seconds)
        self._texts.labels(model, route).inc(num_texts)

    def page(self) -> bytes:
        """All metrics, in the format of Prometheus."""
        return prometheus_client.generate_latest(self._registry)
