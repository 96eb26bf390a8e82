"""Statistics, progress and lag of a broker on real sockets."""

import json

import pytest
import pytest_twisted

from rocketd.remoting.bodies.admin import BrokerStatsData, ConsumeStats, ConsumeStatsList
from rocketd.remoting.bodies.lag import ConsumerLag, TopicFilter
from rocketd.remoting.bodies.tables import KVTable, MessageQueue
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.in_process import broker_in
from tests.servers.wire_client import connect, eventually, running


def send(tag="A", queue_id=0, body=b"hello"):
    fields = {
        "a": "P", "b": "T", "c": "TBW102", "d": "2", "e": str(queue_id), "f": "0", "g": "1700000000000", "h": "0",
        "i": f"TAGS\x01{tag}", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)


def pull(offset):
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "1",
        "commitOffset": str(offset), "suspendTimeoutMillis": "0", "subVersion": "1",
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def heartbeat(expression):
    subscription = {"topic": "T", "subString": expression, "subVersion": 1, "codeSet": [66], "tagsSet": ["B"]}
    consumer = {
        "groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}
    return RemotingCommand(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


class Admin:
    """Asks a broker, and wants success."""

    def __init__(self, client):
        self.client = client

    async def ask(self, code, body, **fields):
        answer = await self.client.ask(RemotingCommand(code, fields))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return body.decode(answer.body)

    async def statistic(self, name, key):
        """Return the sum of the last minute; None if the statistic does not exist."""
        answer = await self.client.ask(
            RemotingCommand(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        )
        if answer.code == ResponseCode.SYSTEM_ERROR:
            assert answer.remark == f"The stats <{name}> <{key}> not exist"
            return None
        return BrokerStatsData.decode(answer.body).stats_minute.sum

    async def lag(self):
        return await self.ask(RequestCode.GET_CONSUMER_LAG, ConsumerLag, consumerGroup="G")


async def visible(broker, count):
    await eventually(lambda: broker.store.get_max_offset("T", 0) == count)


@pytest_twisted.ensureDeferred
async def test_statistics_count_puts_and_gets(tmp_path):
    async with running(broker_in(tmp_path, "")) as broker:
        client = await connect(broker.port)
        admin = Admin(client)
        assert await admin.statistic("TOPIC_PUT_NUMS", "T") is None
        for tag in "ABBA":
            assert (await client.ask(send(tag))).code == ResponseCode.SUCCESS
        await visible(broker, 4)
        assert (await client.ask(heartbeat("B"))).code == ResponseCode.SUCCESS
        assert (await client.ask(pull(1))).code == ResponseCode.SUCCESS
        broker.broker_stats.sample()
        assert await admin.statistic("TOPIC_PUT_NUMS", "T") == 4
        assert await admin.statistic("TOPIC_PUT_SIZE", "T") == broker.store.max_physical_offset()
        assert await admin.statistic("BROKER_PUT_NUMS", "DefaultCluster") == 4
        assert await admin.statistic("GROUP_GET_NUMS", "T@G") == 2
        assert await admin.statistic("BROKER_GET_NUMS", "DefaultCluster") == 2

        progress = await admin.ask(RequestCode.GET_CONSUME_STATS, ConsumeStats, consumerGroup="G")
        first = progress.offset_table[MessageQueue("T", "broker-a", 0)]
        assert (first.broker_offset, first.consumer_offset) == (4, 1)
        assert first.last_timestamp > 1_700_000_000_000
        assert 0 < progress.consume_tps <= 0.2
        every = await admin.ask(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsList, isOrder="false")
        assert (every.total_diff, every.broker_addr) == (3, f"127.0.0.1:{broker.port}")

        group = RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"})
        assert (await client.ask(group)).code == ResponseCode.SUCCESS
        assert await admin.statistic("GROUP_GET_NUMS", "T@G") is None
        topic = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert (await client.ask(topic)).code == ResponseCode.SUCCESS
        assert await admin.statistic("TOPIC_PUT_NUMS", "T") is None
        assert await admin.statistic("BROKER_PUT_NUMS", "DefaultCluster") == 4


@pytest.mark.long
@pytest_twisted.ensureDeferred
async def test_samples_are_taken(tmp_path):
    async with running(broker_in(tmp_path, "")) as broker:
        client = await connect(broker.port)
        admin = Admin(client)
        assert (await client.ask(send())).code == ResponseCode.SUCCESS

        async def is_seen():
            return await admin.statistic("TOPIC_PUT_NUMS", "T") == 1

        await eventually(is_seen)


@pytest_twisted.ensureDeferred
async def test_runtime_information(tmp_path):
    async with running(broker_in(tmp_path, "", flushDiskType="SYNC_FLUSH")) as broker:
        client = await connect(broker.port)
        for _ in range(3):
            assert (await client.ask(send())).code == ResponseCode.SUCCESS
        table = (await Admin(client).ask(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
        assert (table["putMessageTimesTotal"], table["msgPutTotalTodayNow"]) == ("3", "3")
        assert table["putMessageDistributeTime"] == "null"
        assert table["putLatency99"] == "0.00"
        assert int(table["putMessageEntireTimeMax"]) < 60_000
        assert table["EndTransactionQueueSize"] == "0"
        assert sum(broker.stats._put_times._distribution) == 3


@pytest_twisted.ensureDeferred
async def test_lag_of_group_is_known_online_offline_and_after_restart(tmp_path):
    async with running(broker_in(tmp_path, "")) as broker:
        client = await connect(broker.port)
        admin = Admin(client)
        for tag in "BABAB":
            assert (await client.ask(send(tag))).code == ResponseCode.SUCCESS
        await visible(broker, 5)
        consumer = await connect(broker.port)
        assert (await consumer.ask(heartbeat("B"))).code == ResponseCode.SUCCESS
        assert (await consumer.ask(pull(1))).code == ResponseCode.SUCCESS
        lag = await admin.lag()
        assert (lag.online, lag.total_messages) == (True, 2)
        assert lag.filters == {"T": TopicFilter("TAG", "B", current=True)}
        assert 0 <= lag.max_delay_millis < 60_000
        broker.last_subscriptions.note()
        consumer.transport.loseConnection()
        await eventually(lambda: broker.consumers.find("G") is None)
        lag = await admin.lag()
        assert (lag.online, lag.total_messages) == (False, 2)
        assert not lag.filters["T"].current
    async with running(broker_in(tmp_path, "")) as broker:
        client = await connect(broker.port)
        lag = await Admin(client).lag()
        assert (lag.online, lag.total_messages) == (False, 2)
        assert [queue.consumer_offset for queue in lag.queues] == [1, -1]
