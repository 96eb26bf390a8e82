"""Metrics and health of a server over HTTP, for Prometheus and for orchestrators.

- `settings`: where to listen. Without `metricsPort` nothing is opened.
- `endpoint`: the pages `/metrics`, `/healthz` and `/readyz`, and their limits.
- `families`: makes metrics from values, and bounds their number.
- `server_metrics`: metrics of every server: connections, pools, limits, event loops.

The values are counted elsewhere, also without this endpoint. A request reads them, in a thread of the endpoint, at most
once a second. A name with `rocketmq_` in front has the same meaning as in Apache's exporter. `rocketd_` is in front of all
others.

A package above adds its own metrics: `rocketd.broker.metrics`, `rocketd.namesrv.metrics`.
"""
