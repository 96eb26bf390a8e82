"""Settings of the endpoint for metrics."""

from rocketd.common.settings.checks import HOST, is_host
from rocketd.common.settings.declaration import setting, settings_group

MAX_PORT = 65535


@settings_group
class MetricsConfig:
    """The HTTP endpoint for Prometheus and for health checks. Apache has a separate program for it."""

    metrics_port: int = setting(
        0,
        "Port of the HTTP pages /metrics, /healthz and /readyz. 0 opens none.",
        minimum=0,
        maximum=MAX_PORT,
        remote=False,
    )
    metrics_host: str = setting(
        "127.0.0.1",
        "Address on which metricsPort listens. The pages have no login: they show the names of topics and groups. "
        "0.0.0.0 and :: are all addresses.",
        check=is_host,
        accepted=HOST,
        remote=False,
    )
    metrics_max_series: int = setting(
        20000,
        "Maximum number of series in one metric. The rest is left out, and counted in rocketd_metrics_left_out.",
        minimum=1,
    )
