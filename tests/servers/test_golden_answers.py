"""Recorded requests of unmodified clients get answers of the shape that Apache's broker gave.

The broker here starts empty, so each request finds the state made for it that lets the recorded answer come about:
topics, members, messages, offsets. Decided differences are named in ``expected_code`` and ``assert_same_shape``.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import make_broker
from rocketd.common.message_properties import decode_properties
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.format.record import decode_messages
from tests.servers.wire_client import connect, eventually, running
from tests.support.patience import PATIENT

FRAMES = Path(__file__).resolve().parent.parent / "golden" / "frames"
FILES = ("java4", "java4bin", "go", "node", "python")
ZERO_COPY = (RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
SQL_ANSWERS = (ResponseCode.FILTER_DATA_NOT_EXIST, ResponseCode.FILTER_DATA_NOT_LATEST)
FAR_FUTURE = 1 << 62


def recorded_pairs(name):
    """Yield request and Apache's answer, as they were sent."""
    records = [json.loads(line) for line in (FRAMES / f"{name}.jsonl").read_text().splitlines()]

    def decoded(record):
        (frame,) = FrameDecoder().feed(bytes.fromhex(record["hex"]))
        return RemotingCommand.decode(frame)

    answers = {(r["connection"], r["opaque"]): decoded(r) for r in records if r["sender"] == "broker"}
    for record in records:
        if record["receiver"] == "broker" and record["kind"] == "request":
            answer = answers.get((record["connection"], record["opaque"]))
            if answer is not None and answer.is_response:
                yield decoded(record), answer


def shape(value):
    """Reduce JSON to its member names and types; a list to the shapes that occur in it."""
    if isinstance(value, dict):
        return {str(key): shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return {json.dumps(shape(item), default=repr, sort_keys=True) for item in value}
    return type(value).__name__


class Preparation:
    """Brings the broker into the state in which Apache's was."""

    def __init__(self, client, broker):
        self._client = client
        self._broker = broker
        self._topics = set()
        self._version = FAR_FUTURE

    async def done(self, command):
        answer = await self._client.ask(command)
        assert answer.code == ResponseCode.SUCCESS, (command, answer)
        return answer

    async def topic(self, name):
        if name not in self._topics and not name.startswith("%RETRY%"):
            self._topics.add(name)
            if not self._broker.topics.is_system_topic(name):
                await self.done(
                    RemotingCommand(
                        RequestCode.UPDATE_AND_CREATE_TOPIC,
                        {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "16", "writeQueueNums": "16",
                         "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
                    )
                )  # fmt: skip

    async def member(self, group, topic="Any", expression="*"):
        self._version += 1
        subscription = {"topic": topic, "subString": expression, "subVersion": self._version, "codeSet": []}
        if expression != "*":
            subscription |= {"tagsSet": [expression], "codeSet": [1]}
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        body = {"clientID": "preparation", "producerDataSet": [], "consumerDataSet": [consumer]}
        await self.done(RemotingCommand(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))

    async def asker(self, client_id):
        """Be the producer that waits for a reply, and take it."""
        self._client.answered.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        body = {"clientID": client_id, "producerDataSet": [{"groupName": "P"}], "consumerDataSet": []}
        await self.done(RemotingCommand(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))

    def without_members(self, fields, answer):
        """Let the request name a group without members, and the answer expected name it too."""
        group = fields["consumerGroup"]
        fields["consumerGroup"] = group + "-gone"
        answer.remark = answer.remark.replace(group, group + "-gone")

    async def settled(self):
        """Wait until all that is stored can be read."""
        await eventually(lambda: self._broker.store.dispatch_behind_bytes() == 0)

    async def message(self, topic, queue_id=0, properties=""):
        """Store a message and wait until it can be read; returns its physical offset."""
        fields = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "16",
            "queueId": str(queue_id), "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0",
            "properties": properties,
        }  # fmt: skip
        answer = await self.done(RemotingCommand(RequestCode.SEND_MESSAGE, fields, b"hello"))
        await self.settled()
        return int(answer.ext_fields["msgId"][16:], 16)

    async def half_message(self, fields):
        """Store a half message and let the request end it."""
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{fields['producerGroup']}"
        await self.topic("Any")
        place = await self.message("Any", properties=properties)
        last = self._broker.store.get_max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) - 1
        fields.update(commitLogOffset=str(place), tranStateTableOffset=str(last))

    async def queue_of(self, length, topic, queue_id):
        while self._broker.store.get_max_offset(topic, queue_id) < length:
            await self.message(topic, queue_id)

    async def before(self, request, answer):
        """Prepare for one request, and adapt the names of the recorded broker in it."""
        await self.settled()
        fields = request.ext_fields or {}
        topic = fields.get("topic") or fields.get("b")
        if topic and request.code != RequestCode.UPDATE_AND_CREATE_TOPIC:
            await self.topic(topic)
        if request.code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            await self._before_pull(fields, answer)
        elif request.code in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK):
            await self.topic("Any")
            fields["offset"] = str(await self.message("Any"))
        elif request.code == RequestCode.QUERY_MESSAGE and answer.code == ResponseCode.SUCCESS:
            name = "UNIQ_KEY" if fields.get("_UNIQUE_KEY_QUERY") == "true" else "KEYS"
            await self.message(topic, properties=f"{name}\x01{fields['key']}")
            fields.update(beginTimestamp="0", endTimestamp=str(FAR_FUTURE))
        elif request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            if answer.code == ResponseCode.SUCCESS:
                await self.member(fields["consumerGroup"])
            else:
                self.without_members(fields, answer)
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            await self.queue_of(int(fields["commitOffset"]), topic, int(fields["queueId"]))
        elif request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            await self.queue_of(1, topic, int(fields["queueId"]))
            await self.done(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": "1"}))
        elif request.code == RequestCode.END_TRANSACTION:
            await self.half_message(fields)
        elif request.code in REPLIES and answer.code == ResponseCode.SUCCESS:
            await self.asker(decode_properties(fields.get("i") or fields.get("properties"))["REPLY_TO_CLIENT"])
        elif request.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            await self.message(topic, int(fields["queueId"]))

    async def _before_pull(self, fields, answer):
        fields["suspendTimeoutMillis"] = "0"
        if answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST:
            self.without_members(fields, answer)
            return
        topic, queue_id, offset = fields["topic"], int(fields["queueId"]), int(fields["queueOffset"])
        wanted = "nothing-has-this" if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY else "*"
        await self.member(fields["consumerGroup"], topic, wanted)  # makes a retry topic, too
        if fields.get("subscription"):
            fields["subscription"] = wanted
        if answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
            fields["subVersion"] = str(self._version + 1)
        elif answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            await self.queue_of(offset + 1, topic, queue_id)
        elif answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            fields["queueOffset"] = str(self._broker.store.get_max_offset(topic, queue_id))
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            fields["queueOffset"] = str(self._broker.store.get_max_offset(topic, queue_id) + 1000)


def expected_code(request, answer):
    """Return Apache's code, or the code of this broker if a decision differs."""
    if request.code == RequestCode.LITE_PULL_MESSAGE:
        return ResponseCode.PULL_NOT_FOUND  # not known to 4.9.7; served here as an ordinary pull
    return answer.code


def assert_same_shape(ours, apaches, request):
    assert (ours.opaque, ours.flag, ours.version) == (request.opaque, apaches.flag, apaches.version), request
    assert ours.language == LanguageCode.PYTHON
    # Apache's writes some answers with a body from the log in JSON, whatever the request had.
    assert ours.serialize_type == request.serialize_type
    if request.code not in ZERO_COPY:
        assert ours.serialize_type == apaches.serialize_type
    if apaches.remark is None:
        assert ours.remark is None, request
    elif apaches.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        assert ours.remark  # Apache's is the exception of its Java parser
    else:
        assert (ours.remark or "").startswith(apaches.remark), (request, ours, apaches)
    if SerializeType.ROCKETMQ in (ours.serialize_type, apaches.serialize_type):
        assert set(ours.ext_fields or {}) == set(apaches.ext_fields or {}), (request, ours, apaches)
    else:
        assert (ours.ext_fields is None) == (apaches.ext_fields is None), (request, ours, apaches)
        assert set(ours.ext_fields or {}) == set(apaches.ext_fields or {}), (request, ours, apaches)
    if apaches.body is None:
        assert ours.body is None, (request, ours)
    elif request.code in ZERO_COPY:
        assert decode_messages(ours.body)
        assert decode_messages(apaches.body)
    else:
        assert shape(fastjson.loads(ours.body)) == shape(fastjson.loads(apaches.body)), request


@pytest.mark.parametrize("name", FILES)
@pytest_twisted.ensureDeferred
async def test_recorded_requests_get_apaches_answers(name, tmp_path):
    settings, _ = BrokerSettings.load(
        None,
        [
            ("listenPort", "0"), ("storePathRootDir", str(tmp_path)), ("brokerIP1", "127.0.0.1"),
            ("brokerName", "broker-a"), ("mappedFileSizeCommitLog", "67108864"), ("diskMaxUsedSpaceRatio", "99"),
            ("enablePropertyFilter", "true"), *PATIENT.items(),
        ],
    )  # fmt: skip
    compared = Counter()
    async with running(make_broker(settings, reactor)) as broker:
        client, own = await connect(broker.port), await connect(broker.port)
        preparation = Preparation(own, broker)
        for request, apaches in recorded_pairs(name):
            if apaches.code in SQL_ANSWERS:
                continue
            await preparation.before(request, apaches)
            ours = await client.ask(request)
            code = expected_code(request, apaches)
            assert ours.code == code, (request, ours, apaches)
            if code == apaches.code:
                assert_same_shape(ours, apaches, request)
                compared[request.code] += 1
    assert len(compared) >= 9, compared
    assert sum(compared.values()) >= 20, compared
