"""kill -9 amid transactions: committed messages are there, rolled back ones never are, the rest is checked back."""

import json
import threading
import time
from collections import Counter
from contextlib import suppress

from rocketd.common.message_properties import decode_properties
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.store.format.record import decode_message
from tests.servers.load import Connection, await_dispatched, pull_all
from tests.support.server_processes import QUEUES, TOPIC, ServerProcesses

GROUP = "transactors"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT, ROLLBACK = "8", "12"
WINDOW = 32
BEFORE_KILL = 600
CHECKED_BEFORE_KILL = 20
LIMIT = 60.0  # seconds
SELDOM = {"transactionCheckInterval": "3600000"}
QUICK = {
    "transactionCheckInterval": "300",
    "transactionTimeOut": "300",
    "transactionCheckMax": "1000",
    "flushConsumerOffsetInterval": "200",
}


def outcome(number):
    """Return how the transaction of a message ends; the same for every caller and every call."""
    return COMMIT if number % 2 else ROLLBACK


def is_left_open(number):
    """Whether the producer says nothing before it is asked."""
    return number % 5 == 0


class Transactor:
    """A producer with one connection, in a thread: sends half messages, ends them, answers the broker's questions."""

    def __init__(self):
        self.next_number = 0
        self.stored = set()
        self.ended = set()
        """Numbers whose half message was acknowledged, and those whose end was."""
        self.checked = Counter()
        self.refused = []
        self._guard = threading.Condition()

    def start(self, address, sends=True):
        self._sends = sends
        self._thread = threading.Thread(target=self._run, args=(address,))
        self._thread.start()

    def join(self):
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()

    def wait_for(self, what, condition):
        with self._guard:
            assert self._guard.wait_for(condition, LIMIT), what

    def _run(self, address):
        with suppress(OSError):
            connection = Connection(address)
            try:
                self._talk(connection)
            finally:
                connection.close()

    def _talk(self, connection):
        body = {"clientID": "transactor", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        connection.send(RemotingCommand(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))
        halves, ends = {}, {}
        while True:
            while self._sends and len(halves) + len(ends) < WINDOW:
                request = half_message(self.next_number)
                halves[request.opaque] = self.next_number
                self.next_number += 1
                connection.send(request)
            commands = connection.receive()
            if not commands:
                return
            for command in commands:
                if not command.is_response:
                    self._answer(connection, command)
                elif command.opaque in halves:
                    self._half_stored(connection, halves.pop(command.opaque), command, ends)
                elif command.opaque in ends:
                    self._take(ends.pop(command.opaque), command, self.ended)
            with self._guard:
                self._guard.notify_all()

    def _half_stored(self, connection, number, answer, ends):
        self._take(number, answer, self.stored)
        if number in self.stored and not is_left_open(number):
            place = int(answer.ext_fields["msgId"][-16:], 16)
            request = end(number, answer.ext_fields["queueOffset"], place)
            ends[request.opaque] = number
            connection.send(request)

    def _take(self, number, answer, acknowledged):
        if answer.code == ResponseCode.SUCCESS:
            acknowledged.add(number)
        else:
            self.refused.append(f"{answer.code} {answer.remark}")

    def _answer(self, connection, question):
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE
        record = decode_message(question.body)
        assert record.topic == TOPIC
        number = int(decode_properties(record.properties.decode())["UNIQ_KEY"])
        self.checked[number] += 1
        fields = question.ext_fields
        answer = end(number, fields["tranStateTableOffset"], fields["commitLogOffset"], fromTransactionCheck="true")
        answer.flag |= ONEWAY_FLAG
        connection.send(answer)


def half_message(number):
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{number}\x02WAIT\x01true"
    fields = {
        "a": GROUP, "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "4",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, str(number).encode())


def end(number, queue_offset, place, **more):
    fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(place),
        "commitOrRollback": outcome(number),
        "msgId": str(number),
        **more,
    }
    return RemotingCommand(RequestCode.END_TRANSACTION, fields)


def visible(address):
    """Numbers of the messages that consumers get, as often as they get them."""
    return Counter(int(message.body) for queue_id in range(QUEUES) for message in pull_all(address, queue_id))


def asked(address, code, **fields):
    connection = Connection(address)
    try:
        answer = connection.ask(RemotingCommand(code, fields))
    finally:
        connection.close()
    return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else -1


def all_is_settled(address):
    """Whether every half message has ended, as the broker's own progress says."""
    progress = asked(
        address, RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CID_RMQ_SYS_TRANS", topic=HALF, queueId="0"
    )
    return progress == asked(address, RequestCode.GET_MAX_OFFSET, topic=HALF, queueId="0")


def test_transactions_survive(tmp_path):
    servers = ServerProcesses(tmp_path, **SELDOM)
    producer = Transactor()

    def committed(numbers):
        return {number for number in numbers if outcome(number) == COMMIT}

    def check():
        await_dispatched(servers.broker_address)
        there = visible(servers.broker_address)
        assert not {number for number in there if outcome(number) == ROLLBACK}
        assert not committed(producer.ended) - there.keys()
        return there

    try:
        broker = servers.start_broker(registered=False)
        producer.start(servers.broker_address)
        producer.wait_for("ends", lambda: len(producer.ended) >= BEFORE_KILL)
        broker.kill()
        producer.join()
        at_once = set(producer.ended)

        servers.broker_config.update(QUICK)
        broker = servers.start_broker(registered=False)
        there = check()
        assert not {number for number in there if is_left_open(number)}
        producer.start(servers.broker_address, sends=False)
        producer.wait_for("checks", lambda: len(producer.checked) >= CHECKED_BEFORE_KILL)
        broker.kill()
        producer.join()

        broker = servers.start_broker(registered=False)
        check()
        producer.start(servers.broker_address, sends=False)
        broker.wait_for("all is settled", lambda: all_is_settled(servers.broker_address), LIMIT)
        there = check()
        assert committed(producer.stored) <= there.keys()
        assert {number: count for number, count in there.items() if count > 1} == {}
        assert not at_once & producer.checked.keys()
        assert broker.stop() == 0
        producer.join()
        assert producer.refused == []
        assert "Traceback" not in "".join(process.log.read_text() for process in servers.processes)
    finally:
        servers.kill_all()
