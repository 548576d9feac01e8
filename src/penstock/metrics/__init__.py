"""Metrics and health: what Prometheus scrapes, and what probes ask.

definitions     every metric there is, with its type, labels and meaning
exposition      the text that they are told in
system          the whole system's, from its databases
series_bound    how many series of these there are at most
cached          what is read at most once a second
working         one worker's own, from its memory
health          whether a server, or a worker, is live and ready
probes          the small HTTP thread by which a worker tells both
"""

from penstock.metrics.definitions import OF_SYSTEM, OF_WORKER, Metric
from penstock.metrics.exposition import CONTENT_TYPE
from penstock.metrics.health import Health, ServerHealth, server_live, server_ready, workers_live, workers_ready
from penstock.metrics.probes import Probes
from penstock.metrics.system import CachedMetrics, system_metrics
from penstock.metrics.working import worker_metrics

__all__ = [
    "CONTENT_TYPE",
    "OF_SYSTEM",
    "OF_WORKER",
    "CachedMetrics",
    "Health",
    "Metric",
    "Probes",
    "ServerHealth",
    "server_live",
    "server_ready",
    "system_metrics",
    "worker_metrics",
    "workers_live",
    "workers_ready",
]
