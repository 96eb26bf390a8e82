"""For tests of transactional messages: a broker in a directory; tests send it half messages and their ends, and let it tick.

No counterpart in Apache.
"""

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.broker.transaction.processor import EndTransactionProcessor
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.store.format.record import MessageExt, decode_message
from tests.support.broker import RecordingConnection, SmallBroker, job_of

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class TransactionTestCase(SynchronousTestCase):
    """Producers are of group P, messages go to queue 2 of topic T. ``options`` are the broker's settings."""

    options: dict[str, str] = {}

    def setUp(self) -> None:
        """Start a broker with topic T; it is stopped after the test."""
        self.directory = os.path.abspath(self.mktemp())
        self.broker = SmallBroker(self.directory, None, **self.options)
        self._start()
        self.addCleanup(lambda: self.broker.stop())
        self.connection = RecordingConnection()

    def _start(self) -> None:
        self.broker.start()
        if self.broker.topics.select("T") is None:
            self.broker.topics.update(TopicConfig("T", 4, 4))
        self.sends = SendMessageProcessor(self.broker)
        self.ends = EndTransactionProcessor(self.broker)

    def restart(self, *, clean: bool = True) -> None:
        """Stop the broker and start it anew on the same directory; without its last progress when it is not ``clean``."""
        clock = self.broker.clock
        if clean:
            self.broker.transactions.publish()
        self.broker.stop()
        self.broker = SmallBroker(self.directory, clock, **self.options)
        self._start()

    def send(
        self,
        body: bytes = b"x",
        born_ms: int | None = None,
        sys_flag: int = 4,
        reconsume_times: int = 0,
        **properties: str,
    ) -> RemotingCommand:
        """Send a half message; returns the answer."""
        table = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "u", "WAIT": "true", **properties}
        born = self.broker.now_ms() if born_ms is None else born_ms
        values = ("P", "T", "TBW102", 4, 2, sys_flag, born, 7, encode_properties(table), reconsume_times, "false")
        fields = {name: str(value) for name, value in zip("abcdefghijk", values, strict=True)}
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body, version=407)
        self.sends.process_jobs([job_of(self.sends, self.connection, request)])
        self.broker.settle()
        return self.connection.answer()

    def half(self, body: bytes = b"x", **more: Any) -> MessageExt:
        """Send a half message; returns it as it is stored."""
        self.assertEqual(self.send(body, **more).code, 0)
        return self.read(TRANS_HALF_TOPIC)[-1]

    def end_request(self, half: MessageExt, how: int = COMMIT, flag: int = 0, **changed: str) -> RemotingCommand:
        """Make a request that ends a transaction."""
        fields = {
            "producerGroup": "P",
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": str(how),
            "msgId": "u",
            **changed,
        }
        return RemotingCommand(RequestCode.END_TRANSACTION, fields, flag=flag)

    def end(
        self, half: MessageExt, how: int = COMMIT, *, oneway: bool = False, settle: bool = True, **changed: str
    ) -> RemotingCommand | None:
        """End a transaction; returns the answer, None without one."""
        request = self.end_request(half, how, ONEWAY_FLAG if oneway else 0, **changed)
        self.ends.process_jobs([job_of(self.ends, self.connection, request)])
        if settle:
            self.broker.settle()
        answers = self.connection.answers()
        return answers[0] if answers else None

    def read(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """Read the visible messages of a queue."""
        store = self.broker.store
        records = [store.look_message(entry[0]) for entry in store.queue_entries(topic, queue_id, 0, 1000)]
        return [decode_message(record) for record in records if record is not None]

    def bodies(self) -> list[bytes]:
        """What consumers get."""
        return [message.body for message in self.read("T", 2)]

    # ------------------------------------------------------------ checks

    def join(self, group: str = "P") -> RecordingConnection:
        """Register a producer by its heartbeat; return its connection."""
        connection = RecordingConnection()
        client = ClientChannelInfo(connection, f"c{id(connection)}", 0, 407, self.broker.now_ms(), 0)
        self.broker.producers.register(group, client)
        return connection

    def check(self, seconds: float = 60.0) -> list[MessageExt]:
        """Let time pass and the broker check its half messages once; return the messages producers are asked about."""
        self.broker.clock.advance(seconds)
        self.broker.transactions.tick()
        self.broker.settle()
        return [decode_message(request.body or b"") for _, request in self.questions()]

    def questions(self) -> list[tuple[Any, RemotingCommand]]:
        """Take the connections with requests since the last call, and the requests."""
        sent, self.broker.invoke.sent = self.broker.invoke.sent, []
        return [(connection, request) for connection, request, _ in sent]
