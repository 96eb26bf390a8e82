"""Requests of a broker to its clients on real sockets, with slow, lost, or responsive clients."""

import json
import os
import sys
from contextlib import asynccontextmanager

import pytest
import pytest_twisted
from twisted.internet.utils import getProcessOutputAndValue

from rocketd.remoting.bodies.groups import GroupProblems
from rocketd.remoting.bodies.tables import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, TopicConfig
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.wire.codes import LanguageCode, RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.in_process import both_servers
from tests.servers.wire_client import connect, eventually
from tests.support.server_processes import SOURCES

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def heartbeat(client_id, group="G", topics=("T",), tags="*", version=407, language=LanguageCode.JAVA):
    subscriptions = [SubscriptionData(topic, tags) for topic in topics]
    body = HeartbeatData(client_id, [ProducerData("P")], [ConsumerData(group, subscription_data_set=subscriptions)])
    return RemotingCommand(RequestCode.HEART_BEAT, body=body.encode(), version=version, language=language)


@asynccontextmanager
async def broker_with(directory, *heartbeats):
    """Run a broker with a topic T of two queues; yields it, an administrator, and a client for each heartbeat."""
    async with both_servers(directory) as (_, broker):
        broker.topics.update(TopicConfig("T", 2, 2))
        clients = []
        for beat in heartbeats:
            client = await connect(broker.port)
            assert (await client.ask(beat)).code == 0
            clients.append(client)
        admin = await connect(broker.port)
        try:
            yield broker, admin, clients
        finally:
            for client in (admin, *clients):
                client.transport.loseConnection()
                await client.wait_closed()


async def asked(client, code):
    """Wait for a request of that code to a client, and return it."""
    found = []

    def came():
        found[:] = [request for request in client.requests if request.code == code]
        return found

    await eventually(came)
    return found[-1]


def running_info(client_id="one"):
    return RemotingCommand(307, {"consumerGroup": "G", "clientId": client_id, "jstackEnable": "false"})


@pytest_twisted.ensureDeferred
async def test_slow_consumer_does_not_delay_other_requests(tmp_path):
    async with broker_with(tmp_path, heartbeat("one")) as (_, admin, (one,)):
        first, second = running_info(), running_info()
        waiting = admin.ask(first), admin.ask(second)
        await asked(one, 307)
        # The same pool serves this one while both wait.
        assert (await admin.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))).code == 0
        await eventually(lambda: len([request for request in one.requests if request.code == 307]) == 2)
        for request in reversed(one.requests):
            if request.code == 307:
                one.send(RemotingCommand.response(body=str(request.opaque).encode()).answering(request))
        answers = [await answer for answer in waiting]
        assert [answer.code for answer in answers] == [0, 0]
        assert [answer.opaque for answer in answers] == [first.opaque, second.opaque]
        assert answers[0].body != answers[1].body


@pytest_twisted.ensureDeferred
async def test_lost_consumer_ends_the_relayed_request_at_once(tmp_path):
    async with broker_with(tmp_path, heartbeat("one")) as (_, admin, (one,)):
        waiting = admin.ask(running_info())
        await asked(one, 307)
        one.transport.loseConnection()
        answer = await waiting
        assert answer.code == 1
        assert answer.remark.startswith("invoke consumer <G> <one> Exception: ")


@pytest.mark.long
@pytest_twisted.ensureDeferred
async def test_silent_consumer_is_given_up(tmp_path):
    async with broker_with(tmp_path, heartbeat("one"), heartbeat("two")) as (_, admin, (one, two)):
        waiting = admin.ask(running_info(), limit=60)
        status = admin.ask(RemotingCommand(223, {"topic": "T", "group": "G"}), limit=60)
        request = await asked(two, 221)
        queue = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
        body = f'{{"consumerTable":{{}},"messageQueueTable":{{{queue}:7}}}}'.encode()
        two.send(RemotingCommand.response(body=body).answering(request))
        answer = await status
        assert answer.code == 0
        assert list(fastjson.loads(answer.body)["consumerTable"]) == ["two"]
        answer = await waiting
        assert answer.code == 207
        assert answer.remark.startswith("consumer <G> <one> Timeout: ")
        assert one.requests


@pytest_twisted.ensureDeferred
async def test_reset_reaches_every_member_in_its_language_form(tmp_path):
    beats = heartbeat("java"), heartbeat("cpp", language=LanguageCode.CPP, version=63)
    async with broker_with(tmp_path, *beats) as (broker, admin, (java, cpp)):
        for queue_id in range(2):
            broker.offsets.commit("h:1", "G", "T", queue_id, 5)
        fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
        answer = await admin.ask(RemotingCommand(222, fields))
        assert answer.code == 0
        table = {dict(queue)["queueId"]: offset for queue, offset in fastjson.loads(answer.body)["offsetTable"].items()}
        assert table == {0: 0, 1: 0}
        to_java, to_cpp = await asked(java, 220), await asked(cpp, 220)
        assert to_java.is_oneway
        assert to_java.body == answer.body
        assert {entry["queueId"]: entry["offset"] for entry in json.loads(to_cpp.body)["offsetTable"]} == {0: 0, 1: 0}


@pytest_twisted.ensureDeferred
async def test_reply_is_pushed_to_the_asking_client(tmp_path):
    async with broker_with(tmp_path, heartbeat("asker"), heartbeat("replier")) as (broker, _, (asker, replier)):
        properties = "REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c-1\x02MSG_TYPE\x01reply\x02TTL\x013000"
        fields = {
            "a": "P", "b": REPLY_TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
            "i": properties,
        }  # fmt: skip
        waiting = replier.ask(RemotingCommand(325, fields, b"pong"))
        request = await asked(asker, 326)
        assert request.body == b"pong"
        assert "PUSH_REPLY_TIME" in request.ext_fields["properties"]
        asker.send(RemotingCommand.response().answering(request))
        answer = await waiting
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
        assert broker.store.max_physical_offset() > 0
        waiting = replier.ask(RemotingCommand(325, fields, b"pong"))
        await eventually(lambda: len([request for request in asker.requests if request.code == 326]) == 2)
        asker.transport.loseConnection()
        answer = await waiting
        assert (answer.code, answer.remark) == (1, "push reply message to askerfail.")
        assert answer.ext_fields["queueOffset"] == "1"


@pytest_twisted.ensureDeferred
async def test_members_at_odds_are_named(tmp_path):
    beats = heartbeat("twin", tags="A"), heartbeat("twin", tags="B")
    async with broker_with(tmp_path, *beats) as (broker, admin, (one, _)):
        broker.settings.broker.group_guard_grace_time = 0
        assert (await one.ask(beats[0])).code == 0
        found = []

        async def both_named():
            answer = await admin.ask(RemotingCommand(RequestCode.GET_GROUP_PROBLEMS, {"consumerGroup": "G"}))
            found[:] = GroupProblems.decode(answer.body).problems
            if len(found) < 2:  # twins of one and the same millisecond
                await one.ask(beats[0])
            return len(found) == 2

        await eventually(both_named)
        assert [problem.kind for problem in found] == ["DIFFERENT_SUBSCRIPTIONS", "DUPLICATE_CLIENT_ID"]
        assert "twin subscribe to 'B', twin subscribe to 'A'" in found[0].text
        out, err, status = await rocketd_groups(broker, "G")
        assert (err, status) == ("", 1)
        lines = [line.split("\t") for line in out.splitlines()]
        assert [line[:3] for line in lines] == [["broker-a", "G", problem.kind] for problem in found]
        assert lines[0][3] == found[0].text
        assert await rocketd_groups(broker, "H") == ("", "rocketd groups: no broker knows the group H\n", 1)
        one.transport.loseConnection()

        async def none_left():
            answer = await admin.ask(RemotingCommand(RequestCode.GET_GROUP_PROBLEMS))
            return GroupProblems.decode(answer.body).problems == []

        await eventually(none_left)
        assert await rocketd_groups(broker) == ("", "", 0)


async def rocketd_groups(broker, *arguments):
    """Run the command; return its two outputs and its status."""
    program = "from rocketd.tools.cli import main; raise SystemExit(main())"
    words = ["-c", program, "groups", "-n", broker.settings.broker.namesrv_addr, *arguments]
    out, err, status = await getProcessOutputAndValue(sys.executable, words, {**os.environ, "PYTHONPATH": SOURCES})
    return out.decode(), err.decode(), status
