"""The start of a broker: it registers with the name servers when all that serves clients runs."""

from functools import partialmethod
from threading import enumerate as threads_now

import pytest_twisted

from rocketd.broker.registration import Registration
from rocketd.broker.replication.service import Replication
from rocketd.broker.service import Broker
from rocketd.broker.timer.service import TimerMessageService
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.serving.server import RemotingServer
from rocketd.store.message_store import MessageStore
from tests.servers.brokers import make_a_broker, make_name_server, route
from tests.servers.wire_client import eventually, running

STEPS = (
    (MessageStore, "start"),
    (RemotingClient, "startService"),
    (Replication, "start"),
    (RemotingServer, "startService"),
    (Broker, "_start_loops"),
    (TimerMessageService, "start"),
    (Replication, "serving"),
)
"""The parts of a broker that begin before its registration."""


@pytest_twisted.ensureDeferred
async def test_broker_registers_when_all_else_runs(tmp_path, monkeypatch):
    async with running(make_name_server(tmp_path / "namesrv")) as name_server:
        ended, at_registration = [], {}

        def note(self, *arguments, step, run):
            result = run(self, *arguments)
            ended.append(step)
            return result

        def registering(self, run=Registration.start):
            at_registration["ended"] = list(ended)
            at_registration["known"] = name_server.routes.cluster_info().broker_addr_table
            at_registration["threads"] = {thread.name for thread in threads_now()}
            at_registration["serves"] = self._broker.server.running and bool(self._broker._loops)
            return run(self)

        for owner, method in STEPS:
            step = f"{owner.__name__}.{method}"
            monkeypatch.setattr(owner, method, partialmethod(note, step=step, run=getattr(owner, method)))
        monkeypatch.setattr(Registration, "start", registering)
        address = f"127.0.0.1:{name_server.port}"
        async with running(make_a_broker(tmp_path / "broker", namesrvAddr=address)) as broker:
            await broker.when_serving()
            assert at_registration["ended"] == [f"{owner.__name__}.{method}" for owner, method in STEPS]
            assert ended == at_registration["ended"]
            assert at_registration["serves"]
            assert at_registration["known"] == {}
            assert at_registration["threads"] >= {"send-0", "pull-0", "heartbeat-0", "rocketd-store-reput"}
            await eventually(lambda: route(name_server, "TBW102"))
