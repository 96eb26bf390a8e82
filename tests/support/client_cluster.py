"""For the unit tests of producers and consumers: scripted name servers and brokers, on a fake clock."""

from queue import SimpleQueue

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import ClientConfig
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.remoting.bodies.tables import (
    BrokerData,
    ClusterInfo,
    ConsumerOffsetSerializeWrapper,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    QueueData,
    TopicRouteData,
)
from rocketd.remoting.errors import RemotingConnectError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import HEAD_STRUCTS, encode_record

HOST = bytes([10, 0, 0, 1]) + (1).to_bytes(4, "big")
THREAD_LIMIT = 60  # seconds


def damage(record):
    """Return a record with a damaged body."""
    begin = HEAD_STRUCTS[len(HOST), len(HOST)].size
    return record[:begin] + bytes([record[begin] ^ 1]) + record[begin + 1 :]


class Cluster:
    """Name servers and two brokers, a and b, each with ``queues`` of each topic; stands in for a RemotingClient.

    ``asked`` has all requests, a name server's with address None, ``bounded`` the codes of those whose number is limited.
    ``down`` are unreachable addresses, ``refusals`` the answers of brokers by code and address. ``offsets`` are
    those stored by address and topic, ``held`` the pulls that came, answered by ``deliver``, with messages that came again
    ``reconsume_times``; ``slaves`` has further addresses of brokers by broker id, ``masterless`` brokers have only those.
    ``closed`` tells whether the client has closed its connections.
    """

    def __init__(self, topics=("T",)):
        self.topics = set(topics)
        self.brokers = ["a", "b"]
        self.queues = 1
        self.reconsume_times = 0
        self.slaves = {}
        self.masterless = set()
        self.down = set()
        self.asked = []
        self.bounded = []
        self.refusals = {}
        self.heartbeats = []
        self.offsets = {}
        self.log = []
        self.held = []
        self.others = ()
        self.present = ()
        self.processors = {}
        self.closed = False
        self.name_servers = self
        self.addresses = ()
        self.chosen = "ns:9876"

    def update_name_server_addresses(self, addresses):
        self.addresses = tuple(addresses)

    def register_processor(self, code, processor):
        self.processors[code] = processor

    def startService(self):
        pass

    def stopService(self):
        self.closed = True
        return succeed(None)

    def invoke_sync(self, address, request, timeout_ms):
        self.asked.append((request.code, address, dict(request.ext_fields or {}), request))
        if address in self.down:
            return fail(RemotingConnectError(address))
        refusal = self.refusals.get((request.code, address))
        if refusal is not None:
            return succeed(RemotingCommand.response(refusal, "because"))
        answer = getattr(self, f"answer_{request.code}")(address, request, request.ext_fields or {})
        return answer if isinstance(answer, Deferred) else succeed(answer)

    def invoke_async(self, address, request, timeout_ms):
        self.bounded.append(request.code)
        return self.invoke_sync(address, request, timeout_ms)

    def invoke_oneway(self, address, request, timeout_ms):
        return self.invoke_sync(address, request, timeout_ms).addCallback(lambda _: None)

    def request(self, code, fields):
        """Ask something of the client, as a broker does."""
        return self.processors[code](None, RemotingCommand(code, fields))

    def codes(self):
        return [code for code, *_ in self.asked]

    def of(self, code):
        return [(address, fields) for asked, address, fields, _ in self.asked if asked == code]

    def broker_data(self):
        masters = {name: {} if name in self.masterless else {0: f"{name}:10911"} for name in self.brokers}
        return [BrokerData("c", name, {**masters[name], **self.slaves.get(name, {})}) for name in self.brokers]

    def answer_105(self, address, request, fields):
        if fields["topic"] not in self.topics:
            return RemotingCommand.response(17, "no route")
        number = 8 if fields["topic"] == AUTO_CREATE_TOPIC else self.queues
        route = TopicRouteData([QueueData(name, number, 1, 6) for name in self.brokers], self.broker_data())
        return RemotingCommand.response(0, body=route.encode(standard=True))

    def answer_106(self, address, request, fields):
        info = ClusterInfo({data.broker_name: data for data in self.broker_data()}, {"c": set(self.brokers)})
        return RemotingCommand.response(0, body=info.encode())

    def answer_310(self, address, request, fields):
        header = {"msgId": "OFFSETID", "queueId": fields["e"], "queueOffset": str(len(self.log))}
        self.log.append(fields)
        return RemotingCommand.response(0, ext_fields=header)

    def answer_34(self, address, request, fields):
        self.heartbeats.append(HeartbeatData.decode(request.body))
        return RemotingCommand.response(0)

    def answer_38(self, address, request, fields):
        members = [*self.others, *self.present]
        return RemotingCommand.response(0, body=GetConsumerListByGroupResponseBody(members).encode())

    def answer_41(self, address, request, fields):
        wanted = LockBatchRequestBody.decode(request.body).mq_set
        return RemotingCommand.response(0, body=LockBatchResponseBody(wanted).encode())

    def answer_43(self, address, request, fields):
        table = {f"{topic}@cg": {0: offset} for (at, topic), offset in self.offsets.items() if at == address}
        return RemotingCommand.response(0, body=ConsumerOffsetSerializeWrapper(table).encode())

    def answer_14(self, address, request, fields):
        stored = self.offsets.get((address, fields["topic"]))
        if stored is None:
            return RemotingCommand.response(22)
        return RemotingCommand.response(0, ext_fields={"offset": str(stored)})

    def answer_30(self, address, request, fields):
        return RemotingCommand.response(0, ext_fields={"offset": "7"})

    def answer_31(self, address, request, fields):
        return RemotingCommand.response(0, ext_fields={"offset": "0"})

    def answer_29(self, address, request, fields):
        return RemotingCommand.response(0, ext_fields={"offset": "5"})

    def answer_15(self, address, request, fields):
        self.offsets[address, fields["topic"]] = int(fields["commitOffset"])
        return RemotingCommand.response(0)

    def answer_35(self, address, request, fields):
        return RemotingCommand.response(0)

    answer_36 = answer_42 = answer_35

    def answer_11(self, address, request, fields):
        held = Deferred()
        self.held.append((address, fields, held))
        return held

    def pulls(self, topic=None):
        """Return the first offset of the pull waiting at each broker, by address, of one topic or of all."""
        return {
            address: int(fields["queueOffset"])
            for address, fields, held in self.held
            if not held.called and topic in (None, fields["topic"])
        }

    def pull_of(self, address, topic="T", queue_id=0):
        """Return the pull of a queue waiting at a broker: address, fields, and the Deferred of its answer."""
        queue = {"topic": topic, "queueId": str(queue_id)}
        (entry,) = [
            entry
            for entry in self.held
            if entry[0] == address and entry[1].items() >= queue.items() and not entry[2].called
        ]
        return entry

    def deliver(self, address, records, begin, topic="T", queue_id=0, broker_id=0, sys_flag=0, damaged=()):
        """Answer the pull that waits at a broker, with records from an offset on; the next is for ``broker_id``.

        ``damaged`` are numbers of records whose body is damaged.
        """
        entry = self.pull_of(address, topic, queue_id)
        self.held.remove(entry)
        stored = [
            encode_record(
                MessageInner(
                    topic, queue_id, 0, sys_flag, 0, HOST, self.reconsume_times, 0, text, properties.encode(), 0
                ),
                HOST,
                begin + n,
                100 + n,
                0,
            )
            for n, (text, properties) in enumerate(records)
        ]
        body = b"".join(damage(record) if n in damaged else record for n, record in enumerate(stored))
        header = {
            "suggestWhichBrokerId": str(broker_id),
            "minOffset": "0",
            "maxOffset": "0",
            "nextBeginOffset": str(begin + len(records)),
        }
        entry[2].callback(RemotingCommand.response(0, ext_fields=header, body=body))


class ThreadedClock(Clock):
    """A clock for calls from threads; the test runs them."""

    def __init__(self):
        super().__init__()
        self._calls = SimpleQueue()

    def callFromThread(self, function, *arguments):
        self._calls.put((function, arguments))

    def run_call(self):
        """Run the next call of a thread; waits until there is one."""
        function, arguments = self._calls.get(timeout=THREAD_LIMIT)
        function(*arguments)


class ClientTestCase(SynchronousTestCase):
    """Has a client of a Cluster, started."""

    cluster_type = Cluster

    def setUp(self):
        self.clock = ThreadedClock()
        self.cluster = self.cluster_type()
        self.client = ClientInstance(
            self.clock,
            ClientConfig(namesrv=["ns:9876"], client_ip="10.0.0.9", instance_name="me"),
            remoting=self.cluster,
            now_ms=lambda: 1_700_000_000_000 + self.clock.seconds() * 1000,
        )
        self.cluster.present = (self.client.client_id,)
        self.client.startService()

    def result_of(self, coroutine):
        """Return the result of a coroutine without waits."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def failure_of(self, coroutine, error):
        """Return the error of this type raised by a coroutine without waits."""
        return self.failureResultOf(Deferred.fromCoroutine(coroutine), error).value

    def end_of(self, stopping):
        """Wait for a coroutine, or its Deferred, if it waits for threads only."""
        stopped = stopping if isinstance(stopping, Deferred) else Deferred.fromCoroutine(stopping)
        while not stopped.called:
            self.clock.run_call()
        return self.successResultOf(stopped)
