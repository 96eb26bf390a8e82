"""Keep tenants apart: the same names of topics and groups in two namespaces."""

import sys

from rocketd.client import ClientConfig, Message
from rocketd.client.sync import Consumer, Producer

CLUSTER = sys.argv[1:]  # name servers; none given: those of NAMESRV_ADDR

for tenant in ("red", "blue"):
    config = ClientConfig(namesrv=CLUSTER, namespace=tenant)
    with Producer("example_tenant_producer", config) as producer:
        producer.send(Message("ExampleTenants", f"for {tenant}".encode()))
    with Consumer("example_tenant", config, topics="ExampleTenants", begin="earliest") as consumer:
        message = next(consumer)
        print(tenant, "consumed", message.body.decode(), "of", message.topic)
