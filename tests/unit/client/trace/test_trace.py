"""Message trace: records equal to those of Apache's encoder, contexts made of sends and consumption, and the dispatcher."""

import json
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.trace.dispatcher import (
    FLUSH_TIMEOUT,
    MAX_KEYS_SIZE,
    MAX_WAIT,
    AsyncTraceDispatcher,
    trace_producer_group,
)
from rocketd.client.trace.hooks import (
    trace_of_consume,
    trace_of_consumed,
    trace_of_end_transaction,
    trace_of_send,
)
from rocketd.client.trace.records import (
    AccessChannel,
    ConsumeReturnType,
    MessageType,
    TraceBean,
    TraceContext,
    TraceRecordError,
    TraceType,
    decode_records,
    encode_context,
)
from rocketd.store.format.record import decode_messages
from tests.support.places import GOLDEN


def golden_table():
    return json.loads((GOLDEN / "traces" / "records-4.9.7.json").read_text("utf-8"))


def context_of(table):
    beans = tuple(TraceBean(**bean) for bean in table["beans"])
    told = {**table, "beans": beans, "trace_type": TraceType(table["trace_type"])}
    if "access_channel" in table:
        told["access_channel"] = AccessChannel(table["access_channel"])
    return TraceContext(**told)


def told_as(context, table):
    """Return the members of ``table`` from ``context``, with "null" for missing ones, as Java writes them."""

    def member(value, name):
        found = getattr(value, name)
        return "null" if found is None else found

    told = {name: member(context, name) for name in table if name != "beans"}
    told["beans"] = [{name: member(context.beans[0], name) for name in table["beans"][0]}]
    return told


class GoldenTests(SynchronousTestCase):
    def test_contexts_are_written_as_apache_writes_them(self):
        table = golden_table()["written"]
        self.assertGreater(len(table), 20)
        self.assertEqual({entry["context"]["trace_type"] for entry in table}, set(TraceType))
        for entry in table:
            written = encode_context(context_of(entry["context"]))
            self.assertEqual(written.trans_data, entry["data"], entry["name"])
            self.assertEqual(sorted(written.trans_key), [key for key in entry["keys"] if key], entry["name"])

    def test_records_are_read_as_apache_reads_them(self):
        table = golden_table()["read"]
        self.assertGreater(len(table), 15)
        for entry in table:
            if "refused" in entry:
                with self.assertRaises(TraceRecordError, msg=entry["name"]):
                    decode_records(entry["data"])
                continue
            contexts = decode_records(entry["data"])
            self.assertEqual(len(contexts), len(entry["contexts"]), entry["name"])
            for context, expected in zip(contexts, entry["contexts"], strict=True):
                self.assertEqual(told_as(context, expected), expected, entry["name"])

    def test_a_stored_record_is_read_and_written_again_the_same(self):
        stored = []
        for line in (GOLDEN / "frames" / "java4.jsonl").read_text().splitlines():
            frame = json.loads(line)
            if b"Pub\x01" in bytes.fromhex(frame["hex"]):
                data = bytes.fromhex(frame["hex"])
                stored += decode_messages(data[8 + int.from_bytes(data[5:8], "big") :])
        [message] = stored
        self.assertEqual(message.topic, "RMQ_SYS_TRACE_TOPIC")
        [context] = decode_records(message.body.decode())
        self.assertEqual((context.trace_type, context.cost_time, context.success), (TraceType.PUB, 39, True))
        written = encode_context(context)
        self.assertEqual(written.trans_data.encode(), message.body)
        self.assertEqual(" ".join(written.trans_key), message.properties_map()["KEYS"])


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8).filter(
    lambda text: text != "null"
)
MAYBE = st.none() | TEXT
NUMBER = st.integers(0, 2**31 - 1)
TIME = st.integers(0, 2**62)


def beans(**fields):
    return st.builds(TraceBean, msg_id=TEXT, keys=MAYBE, **fields)


MESSAGE = {"topic": TEXT, "tags": MAYBE, "store_host": MAYBE, "message_type": st.sampled_from(MessageType)}


def contexts(trace_type, bean, limit=1, **fields):
    some = st.lists(bean, min_size=1, max_size=limit).map(tuple)
    return st.builds(TraceContext, trace_type=st.just(trace_type), beans=some, **fields)


HEAD = {"timestamp": TIME, "region": MAYBE, "group": TEXT}
ANY_CONTEXT = st.one_of(
    contexts(
        TraceType.PUB,
        beans(offset_msg_id=MAYBE, body_length=NUMBER, **MESSAGE),
        cost_time=NUMBER,
        success=st.booleans(),
        **HEAD,
    ),
    contexts(TraceType.SUB_BEFORE, beans(retry_times=NUMBER), 3, request_id=TEXT, **HEAD),
    contexts(
        TraceType.SUB_AFTER,
        beans(),
        3,
        timestamp=TIME,
        group=TEXT,
        request_id=TEXT,
        cost_time=NUMBER,
        success=st.booleans(),
        context_code=st.sampled_from(ConsumeReturnType) | NUMBER,
    ),
    contexts(
        TraceType.END_TRANSACTION,
        beans(
            transaction_id=MAYBE,
            transaction_state=st.sampled_from(["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]),
            from_transaction_check=st.booleans(),
            **MESSAGE,
        ),
        **HEAD,
    ),
)


def single(context):
    return [replace(context, beans=(bean,)) for bean in context.beans]


class RecordTests(SynchronousTestCase):
    @given(st.lists(ANY_CONTEXT, max_size=4))
    def test_written_contexts_are_read_back(self, some):
        data = "".join(encode_context(context).trans_data for context in some)
        self.assertEqual(decode_records(data), [one for context in some for one in single(context)])

    @given(st.lists(ANY_CONTEXT, min_size=1, max_size=4))
    def test_concatenated_cloud_records_are_separated(self, some):
        def as_written(context):
            if context.trace_type is not TraceType.SUB_AFTER:
                return context
            return replace(context, access_channel=AccessChannel.CLOUD)

        def as_read(context):
            if context.trace_type is not TraceType.SUB_AFTER:
                return context
            return replace(context, timestamp=0, group="")

        data = "".join(encode_context(as_written(context)).trans_data for context in some)
        self.assertEqual(decode_records(data), [as_read(one) for context in some for one in single(context)])

    def test_a_separator_in_a_text_is_refused(self):
        for field in ({"keys": "a\x01b"}, {"tags": "\x02"}, {"msg_id": "1\x02"}):
            with self.assertRaisesRegex(TraceRecordError, "separate"):
                encode_context(TraceContext(trace_type=TraceType.PUB, beans=(TraceBean(**{"msg_id": "1", **field}),)))

    def test_a_context_without_messages_is_refused(self):
        for trace_type in TraceType:
            with self.assertRaisesRegex(TraceRecordError, "without a message"):
                encode_context(TraceContext(trace_type=trace_type, beans=()))

    def test_keys_come_once_each_in_their_order(self):
        some = (
            TraceBean(msg_id="1", keys="b a"),
            TraceBean(msg_id="2", keys=" a  1 "),
            TraceBean(msg_id="3", keys=None),
        )
        written = encode_context(TraceContext(trace_type=TraceType.SUB_AFTER, beans=some))
        self.assertEqual(written.trans_key, ("1", "b", "a", "2", "3"))

    def test_numbers_are_only_digits(self):
        start = "SubBefore\x01{}\x01R\x01G\x01request\x01id\x01{}\x01keys\x02"
        self.assertEqual(decode_records(start.format("-5", "2"))[0].timestamp, -5)
        for text in ("1_0", " 1", "\N{ARABIC-INDIC DIGIT ONE}", "", "-", "1.0"):
            with self.assertRaises(TraceRecordError):
                decode_records(start.format("1", text))


@dataclass
class Consumed:
    """The part of a received message that a trace is made of."""

    msg_id: str
    properties: dict[str, str]
    reconsume_times: int
    topic: str = "T"


def received(msg_id="ID1", times=0, **properties):
    return Consumed(msg_id, properties, times)


def sent(**changes):
    given = {
        "group": "G",
        "topic": "T",
        "properties": {"TAGS": "TagA", "KEYS": "k1 k2"},
        "body_length": 6,
        "store_host": "127.0.0.1:10911",
        "msg_id": "ID1",
        "offset_msg_id": "OFF",
        "success": True,
        "started_ms": 1000,
        "finished_ms": 1039,
    }
    return trace_of_send(**{**given, **changes})


def separated(text):
    return text.replace("|", "\x01").replace(";", "\x02")


def record(context):
    return encode_context(context).trans_data


class HookTests(SynchronousTestCase):
    def test_a_send(self):
        self.assertEqual(
            record(sent(region="east")),
            separated("Pub|1000|east|G|T|ID1|TagA|k1 k2|127.0.0.1:10911|6|39|0|OFF|true;"),
        )

    def test_send_to_broker_without_region_has_default_region(self):
        for region in (None, ""):
            self.assertEqual(sent(region=region).region, "DefaultRegion")

    def test_untraced_send_has_no_context(self):
        self.assertIsNone(sent(trace_on=False))

    def test_clock_set_back_gives_cost_zero(self):
        self.assertEqual(sent(finished_ms=900).cost_time, 0)

    def test_message_type_follows_properties(self):
        for properties, expected in (
            ({}, MessageType.NORMAL),
            ({"TRAN_MSG": "true"}, MessageType.TRANSACTION_HALF),
            ({"TRAN_MSG": "false"}, MessageType.NORMAL),
            ({"DELAY": "3"}, MessageType.DELAY),
            ({"__STARTDELIVERTIME": "1"}, MessageType.DELAY),
            ({"DELAY": "3", "TRAN_MSG": "true"}, MessageType.DELAY),
        ):
            context = sent(properties=properties)
            self.assertEqual(context.beans[0].message_type, expected)
            self.assertEqual((context.beans[0].tags, context.beans[0].keys), (None, None))

    def test_consumption(self):
        messages = [
            received("ID1", 2, KEYS="k1", TAGS="TagA", MSG_REGION="east", TRACE_ON="true"),
            received("ID2", TRACE_ON="false"),
            received("ID3", MSG_REGION="west"),
        ]
        before = trace_of_consume(group="G", messages=messages, request_id="REQ", started_ms=1000)
        self.assertEqual(
            record(before),
            separated("SubBefore|1000|west|G|REQ|ID1|2|k1;SubBefore|1000|west|G|REQ|ID3|0|null;"),
        )
        after = trace_of_consumed(
            before, message_count=3, success=False, return_type=ConsumeReturnType.EXCEPTION, finished_ms=1032
        )
        self.assertEqual(
            record(after),
            separated("SubAfter|REQ|ID1|10|false|k1|2|1032|G;SubAfter|REQ|ID3|10|false|null|2|1032|G;"),
        )

    def test_untraced_consumption_has_no_context(self):
        before = trace_of_consume(group="G", messages=[received(TRACE_ON="false")], request_id="REQ", started_ms=1000)
        self.assertIsNone(before)
        self.assertIsNone(
            trace_of_consumed(
                before, message_count=1, success=True, return_type=ConsumeReturnType.SUCCESS, finished_ms=1001
            )
        )

    def test_transaction_end_has_expected_context(self):
        for flag, state in ((8, "COMMIT_MESSAGE"), (12, "ROLLBACK_MESSAGE"), (0, "UNKNOW")):
            context = trace_of_end_transaction(
                group="G",
                topic="T",
                properties={"TAGS": "TagA", "KEYS": "k1"},
                store_host="127.0.0.1:10911",
                msg_id="ID1",
                transaction_id="TX",
                commit_or_rollback=flag,
                from_check=True,
                now_ms=5,
            )
            self.assertEqual(
                record(context),
                separated(f"EndTransaction|5|DefaultRegion|G|T|ID1|TagA|k1|127.0.0.1:10911|2|TX|{state}|true;"),
            )


class Outbox:
    """Records the messages of a dispatcher; a send ends when the result of ``answer`` does."""

    def __init__(self, answer=lambda: succeed(None)):
        self.answer = answer
        self.messages = []

    def __call__(self, topic, body, keys):
        self.messages.append((topic, decode_records(body.decode()), keys, len(body)))
        return self.answer()

    def ids(self):
        return [[context.beans[0].msg_id for context in told] for _topic, told, _keys, _size in self.messages]


class DispatcherTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.outbox = Outbox()
        self.events = []
        globalLogPublisher.addObserver(self._observe)
        self.addCleanup(globalLogPublisher.removeObserver, self._observe)

    def _observe(self, event):
        if event.get("log_namespace", "").startswith("rocketd.client.trace"):
            self.events.append(formatEvent(event))

    def dispatcher(self, **options):
        return AsyncTraceDispatcher(self.outbox, self.clock, **options)

    def stop(self, dispatcher, **options):
        return Deferred.fromCoroutine(dispatcher.stop(**options))

    def test_contexts_are_batched_until_timeout(self):
        dispatcher = self.dispatcher()
        self.assertTrue(dispatcher.append(sent(msg_id="1")))
        self.clock.advance(MAX_WAIT - 0.1)
        self.assertTrue(dispatcher.append(sent(msg_id="2")))
        self.assertEqual(self.outbox.messages, [])
        self.clock.advance(0.1)
        [(topic, told, keys, _size)] = self.outbox.messages
        self.assertEqual(topic, "RMQ_SYS_TRACE_TOPIC")
        self.assertEqual(told, [sent(msg_id="1"), sent(msg_id="2")])
        self.assertEqual(keys, ("1", "k1", "k2", "2"))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        dispatcher.append(sent(msg_id="3"))
        self.clock.advance(MAX_WAIT)
        self.assertEqual(self.outbox.ids(), [["1", "2"], ["3"]])

    def test_a_full_message_is_sent_at_once(self):
        dispatcher = self.dispatcher(batch_size=3)
        for number in range(7):
            dispatcher.append(sent(msg_id=str(number)))
        self.assertEqual(self.outbox.ids(), [["0", "1", "2"], ["3", "4", "5"]])
        self.clock.advance(MAX_WAIT)
        self.assertEqual(self.outbox.ids()[2:], [["6"]])

    def test_no_message_is_longer_than_allowed(self):
        size = len(record(sent(msg_id="1")).encode())
        dispatcher = self.dispatcher(max_message_size=2 * size)
        for number in range(5):
            dispatcher.append(sent(msg_id=str(number)))
        dispatcher.flush()
        self.assertEqual(self.outbox.ids(), [["0", "1"], ["2", "3"], ["4"]])
        self.assertEqual({length for *_rest, length in self.outbox.messages[:2]}, {2 * size})

    def test_sizes_are_bytes_not_characters(self):
        dispatcher = self.dispatcher(max_message_size=2000)
        for number in range(10):
            dispatcher.append(sent(msg_id=str(number), properties={"KEYS": "鍵" * 200}))
        dispatcher.flush()
        self.assertEqual([name for told in self.outbox.ids() for name in told], [str(number) for number in range(10)])
        self.assertTrue(all(length <= 2000 for *_rest, length in self.outbox.messages))

    def test_keys_of_message_stay_below_limit(self):
        dispatcher = self.dispatcher()
        for number in range(40):
            dispatcher.append(sent(msg_id=f"{number}-{'x' * 1500}"))
        dispatcher.flush()
        self.assertEqual(sum(map(len, self.outbox.ids())), 40)
        self.assertEqual(len(self.outbox.messages), 3)
        self.assertTrue(
            all(len(" ".join(keys)) <= MAX_KEYS_SIZE for _topic, _told, keys, _size in self.outbox.messages)
        )

    def test_context_too_long_is_sent_in_parts(self):
        before = trace_of_consume(
            group="G", messages=[received(str(n)) for n in range(8)], request_id="R", started_ms=1
        )
        size = len(record(before))
        dispatcher = self.dispatcher(max_message_size=size // 2)
        self.assertTrue(dispatcher.append(before))
        dispatcher.flush()
        self.assertEqual(self.outbox.ids(), [["0", "1", "2", "3"], ["4", "5", "6", "7"]])

    def test_record_too_long_is_sent_alone(self):
        dispatcher = self.dispatcher(max_message_size=300)
        for msg_id in ("1", "2" * 400, "3"):
            dispatcher.append(sent(msg_id=msg_id))
        dispatcher.flush()
        self.assertEqual(self.outbox.ids(), [["1"], ["2" * 400], ["3"]])

    def test_topic_can_be_chosen(self):
        for topic, expected in (("Traces", "Traces"), ("", "RMQ_SYS_TRACE_TOPIC"), (None, "RMQ_SYS_TRACE_TOPIC")):
            self.outbox.messages.clear()
            dispatcher = self.dispatcher(topic=topic)
            dispatcher.append(sent())
            dispatcher.flush()
            self.assertEqual([message[0] for message in self.outbox.messages], [expected])

    def test_each_region_of_the_cloud_has_a_topic(self):
        dispatcher = self.dispatcher(access_channel=AccessChannel.CLOUD, topic="Traces")
        for msg_id, region in (("1", "east"), ("2", "west"), ("3", "east"), ("4", None)):
            dispatcher.append(sent(msg_id=msg_id, region=region))
        dispatcher.flush()
        self.assertEqual(
            [message[0] for message in self.outbox.messages],
            ["rmq_sys_TRACE_DATA_east", "rmq_sys_TRACE_DATA_west", "rmq_sys_TRACE_DATA_DefaultRegion"],
        )
        self.assertEqual(self.outbox.ids(), [["1", "3"], ["2"], ["4"]])

    def test_traces_are_not_traced(self):
        dispatcher = self.dispatcher(topic="Trace")
        self.assertTrue(dispatcher.append(None))
        self.assertTrue(dispatcher.append(sent(topic="Trace")))
        self.assertTrue(dispatcher.append(sent(topic="rmq_sys_TRACE_DATA_east")))
        self.assertTrue(dispatcher.append(sent(topic="TraceOfGoods")))
        dispatcher.flush()
        self.assertEqual(
            [told[0].beans[0].topic for _topic, told, _keys, _size in self.outbox.messages], ["TraceOfGoods"]
        )
        self.assertEqual(dispatcher.dropped, 0)

    def test_contexts_over_queue_size_are_dropped_and_logged_once(self):
        sends = []

        def answer():
            sends.append(Deferred())
            return sends[-1]

        self.outbox.answer = answer
        dispatcher = self.dispatcher(queue_size=4, batch_size=2)
        self.assertEqual([dispatcher.append(sent()) for _ in range(7)], [True] * 4 + [False] * 3)
        self.assertEqual(dispatcher.dropped, 3)
        self.assertEqual(len(self.events), 1)
        self.assertIn("4 traces wait to be sent to RMQ_SYS_TRACE_TOPIC", self.events[0])
        sends[0].callback(None)
        self.assertEqual([dispatcher.append(sent()) for _ in range(3)], [True, True, False])
        self.assertEqual(dispatcher.dropped, 4)
        self.assertEqual(len(self.events), 2)

    def test_failed_send_is_counted_and_logged_once(self):
        outcomes = [ValueError("no broker"), ValueError("no broker"), None, ValueError("again")]

        async def answer():
            outcome = outcomes.pop(0)
            if outcome is not None:
                raise outcome

        self.outbox.answer = answer
        dispatcher = self.dispatcher(batch_size=2)
        for _ in range(8):
            self.assertTrue(dispatcher.append(sent()))
        self.assertEqual((dispatcher.failed, dispatcher.dropped), (6, 0))
        self.assertEqual(
            self.events,
            [
                "2 traces could not be sent to RMQ_SYS_TRACE_TOPIC: no broker",
                "2 traces could not be sent to RMQ_SYS_TRACE_TOPIC: again",
            ],
        )

    def test_error_of_trace_send_does_not_reach_the_sender(self):
        def answer():
            raise RuntimeError("not started")

        self.outbox.answer = answer
        dispatcher = self.dispatcher(batch_size=1)
        self.assertTrue(dispatcher.append(sent()))
        self.assertEqual(dispatcher.failed, 1)

    def test_unencodable_context_is_dropped(self):
        dispatcher = self.dispatcher()
        self.assertFalse(dispatcher.append(sent(msg_id="a\x01b")))
        self.assertTrue(dispatcher.append(sent(msg_id="\ud800")))
        self.assertEqual(dispatcher.dropped, 1)
        self.assertEqual(len(self.events), 1)
        self.assertIn("cannot be written", self.events[0])
        dispatcher.flush()
        self.assertEqual(self.outbox.ids(), [["?"]])

    def test_stop_sends_waiting_contexts(self):
        sends = []

        def answer():
            sends.append(Deferred())
            return sends[-1]

        self.outbox.answer = answer
        dispatcher = self.dispatcher()
        dispatcher.append(sent(msg_id="1"))
        first, second = self.stop(dispatcher), self.stop(dispatcher)
        self.assertEqual(self.outbox.ids(), [["1"]])
        self.assertNoResult(first)
        sends[0].callback(None)
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.events, [])

    def test_stop_of_empty_dispatcher_ends_at_once(self):
        dispatcher = self.dispatcher()
        self.successResultOf(self.stop(dispatcher))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertFalse(dispatcher.append(sent()))
        self.assertEqual(dispatcher.dropped, 1)
        self.successResultOf(self.stop(dispatcher))
        self.assertEqual(self.outbox.messages, [])

    def test_stop_is_bounded(self):
        cancelled = []
        self.outbox.answer = lambda: Deferred(cancelled.append)
        dispatcher = self.dispatcher(batch_size=1)
        dispatcher.append(sent(msg_id="1"))
        dispatcher.append(sent(msg_id="2"))
        stopped = self.stop(dispatcher)
        self.clock.advance(FLUSH_TIMEOUT - 0.1)
        self.assertNoResult(stopped)
        self.clock.advance(0.1)
        self.successResultOf(stopped)
        self.assertEqual(len(cancelled), 2)
        self.assertEqual(dispatcher.failed, 2)
        self.assertEqual(self.events[-1], "traces that were not sent: 0 dropped, 2 by sends that failed")

    def test_stop_does_not_wait_for_endless_send(self):
        last = Deferred()

        async def answer():
            try:
                await Deferred()
            except Exception:
                await last

        self.outbox.answer = answer
        dispatcher = self.dispatcher(batch_size=1)
        dispatcher.append(sent())
        stopped = self.stop(dispatcher, timeout=2)
        self.clock.advance(2)
        self.successResultOf(stopped)
        last.callback(None)
        self.assertEqual(dispatcher.failed, 0)

    def test_producer_group_has_apaches_name(self):
        self.assertEqual(trace_producer_group("G", "PRODUCE", 3), "_INNER_TRACE_PRODUCER-G-PRODUCE-3")
