"""Name servers and brokers in this process, and requests to them."""

import json
from time import time

from twisted.internet import reactor

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import Broker, make_broker
from rocketd.namesrv.service import make_namesrv
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies.tables import TopicRouteData
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.wire_client import connect
from tests.support.patience import PATIENT


def make_name_server(directory, **more):
    options = {
        "listenPort": "0",
        "kvConfigPath": f"{directory}/kvConfig.json",
        "configStorePath": f"{directory}/namesrv.properties",
        "tls.server.mode": "disabled",
        **more,
    }
    settings, _ = NamesrvSettings.load(overrides=options.items())
    return make_namesrv(settings, reactor)


def make_a_broker(directory, file_system=None, **options):
    given = {
        "listenPort": "0",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": f"{directory}/store",
        "mappedFileSizeCommitLog": str(64 << 20),
        "diskMaxUsedSpaceRatio": "99",
        "tls.server.mode": "disabled",
        **PATIENT,
        **options,
    }
    settings, _ = BrokerSettings.load(None, list(given.items()))
    if file_system is not None:
        return Broker(settings, reactor, file_system, lambda: int(time() * 1000))
    return make_broker(settings, reactor)


def send(topic="T", queue_id=0, body=b"hello", tag="", **more):
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1700000000000", "h": "0",
        "i": f"TAGS\x01{tag}" if tag else "", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body, **more)


def pull(topic="T", queue_id=0, offset=0, sys_flag=2 | 4, wait_ms=15_000, expression="*"):
    fields = {
        "consumerGroup": "G", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": str(sys_flag), "commitOffset": "0", "suspendTimeoutMillis": str(wait_ms), "subVersion": "0",
        "subscription": expression,
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def heartbeat(client_id, group="G"):
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
    }  # fmt: skip
    body = {"clientID": client_id, "producerDataSet": [{"groupName": "P"}], "consumerDataSet": [consumer]}
    return RemotingCommand(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


async def route(name_server, topic):
    client = await connect(name_server.port)
    answer = await client.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
    client.transport.loseConnection()
    return TopicRouteData.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
