"""Ship the records of ``logging`` to a topic: who logs never waits for a broker."""

import logging
import sys

from rocketd.client.logging_handler import RocketMQHandler
from rocketd.client.sync import Consumer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

handler = RocketMQHandler("ExampleLogs", "example_logging", CLUSTER, tags=lambda record: record.levelname)
handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
logging.basicConfig(level=logging.INFO, handlers=[handler])

logging.getLogger("shop").info("order %s is paid", "A17")
logging.getLogger("shop.stock").warning("no more %s", "apples")
handler.flush()  # happens at exit by itself

with Consumer("example_logs", CLUSTER, topics="ExampleLogs", begin="earliest") as consumer:
    for line in sorted(next(consumer).body.decode() for _ in range(2)):
        print(line)
