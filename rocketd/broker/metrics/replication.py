"""Slaves of this broker, and how far they are behind."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from rocketd.broker.admin.parts import AdminParts
from rocketd.metrics.families import Families

_SLAVE = "haSlave_"


class ReplicationMetrics:
    """The values of replication in brokerStatus. Any thread."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker

    def metrics(self, families: Families) -> Iterator[Metric]:
        """See MetricSource."""
        end = self._broker.store.max_physical_offset()
        table = self._broker.replication.table()
        behind = [
            ((key[len(_SLAVE) :],), max(0, end - int(offset)))
            for key, offset in table.items()
            if key.startswith(_SLAVE)
        ]
        yield families.gauge("rocketd_slaves", "Connected slaves.", (), [((), len(behind))])
        yield families.gauge(
            "rocketd_slave_behind_bytes", "Bytes of the log that a slave has not reported.", ("slave",), behind
        )
        if "haMasterConnected" in table:
            yield families.gauge(
                "rocketd_master_connected",
                "1 on a slave that is connected to its master, else 0.",
                (),
                [((), float(table["haMasterConnected"] == "true"))],
            )
