"""Of two masters of one name that run, one steps down; who is another master, and who is not."""

import os

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.replication.group import BrokerGroup, Instance
from rocketd.broker.replication.single_master import CHECK_SECONDS, SecondMasterError, SingleMaster
from rocketd.broker.testing import SmallBroker
from rocketd.remoting.bodies import BrokerData, ClusterInfo, KVTable
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingTimeoutError
from rocketd.store.message import PutStatus
from rocketd.store.testing import make_message

OTHER = "10.0.0.2:10911"
INFO, CONFIG, BROKERS = 28, 26, 106


class Network:
    """Answers by address and code; all others do not answer."""

    class name_servers:  # noqa: N801 - an attribute of the real client
        addresses = ("n1", "n2")

    def __init__(self):
        self.answers = {}

    def invoke_sync(self, address, request, timeout_ms):
        answer = self.answers.get((address, request.code))
        return fail(RemotingTimeoutError(address, timeout_ms)) if answer is None else succeed(answer)

    def registered(self, name_server, **brokers):
        table = {name: BrokerData("c", name, addresses) for name, addresses in brokers.items()}
        self.answers[name_server, BROKERS] = RemotingCommand.response(body=ClusterInfo(table, {}).encode())

    def info(self, **table):
        self.answers[OTHER, INFO] = RemotingCommand.response(body=KVTable(table).encode())

    def rocketd(self, instance, role="ASYNC_MASTER", name="broker-a", refuses="false"):
        self.info(haInstance=instance, haRole=role, haBrokerName=name, haSendsRefused=refuses)


class Registration:
    held = False

    def hold(self):
        self.held = True


class SingleMasterTestCase(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.registration = Registration()
        self.network = Network()
        self.network.registered("n2", **{"broker-a": {0: OTHER, 1: "10.0.0.3:10911"}, "broker-b": {0: "10.0.0.4:1"}})
        self.clock = Clock()
        own = Instance(1000, "b")
        self.group = BrokerGroup(self.broker, self.network, own)
        self.single = SingleMaster(self.broker, self.group, own, self.clock)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def check(self):
        self.successResultOf(self.single.check())
        return self.single.refuses

    def lines(self, level):
        return [formatEvent(event) for event in self.events if event["log_level"] is level]


class CheckTests(SingleMasterTestCase):
    def test_members_are_those_of_this_name_at_any_name_server(self):
        self.network.registered("n1", **{"broker-a": {0: self.broker.address, 2: "10.0.0.5:10911"}})
        members = self.successResultOf(Deferred.fromCoroutine(self.group.members()))
        self.assertEqual(members, ([OTHER], ["10.0.0.5:10911", "10.0.0.3:10911"]))

    def test_name_server_answering_nonsense_says_nothing(self):
        self.network.answers["n2", BROKERS] = RemotingCommand.response(body=b"[1")
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.group.members())), ([], []))

    def test_master_that_does_not_answer_is_no_rival(self):
        self.assertFalse(self.check())

    def test_later_rocketd_master_has_this_one_step_down(self):
        self.network.rocketd("1001-a")
        self.assertTrue(self.check())
        self.assertTrue(self.broker.registration.held)
        (result,) = self.broker.store.put_messages([make_message(b"x")])
        self.assertEqual(result.status, PutStatus.SERVICE_NOT_AVAILABLE)
        self.assertIn(f"another master of broker-a is registered and answers at {OTHER}", result.cause)
        self.assertIn("start it again as the other's slave", self.lines(LogLevel.critical)[0])

    def test_earlier_rocketd_master_is_named_once_and_has_to_step_down_itself(self):
        self.network.rocketd("999-z")
        for _ in range(3):
            self.assertFalse(self.check())
        (line,) = self.lines(LogLevel.error)
        self.assertIn(f"alive at {OTHER}; it was started before this one", line)

    def test_masters_started_at_once_have_one_step_down(self):
        self.network.rocketd("1000-a")
        self.assertFalse(self.check())
        self.network.rocketd("1000-c")
        self.assertTrue(self.check())

    def test_this_broker_at_another_address_is_no_rival(self):
        self.network.rocketd("1000-b")
        self.assertFalse(self.check())

    def test_slaves_other_names_and_those_stepped_down_are_no_rivals(self):
        for changes in ({"role": "SLAVE"}, {"name": "broker-x"}, {"refuses": "true"}):
            self.network.rocketd("1001-a", **changes)
            self.assertFalse(self.check(), changes)

    def test_apache_master_never_steps_down_so_this_one_does(self):
        self.network.info(bootTimestamp="1")
        self.network.answers[OTHER, CONFIG] = RemotingCommand.response(
            body=b"brokerName=broker-a\nbrokerRole=SYNC_MASTER\n"
        )
        self.assertTrue(self.check())

    def test_apache_slave_or_other_name_is_no_rival(self):
        self.network.info(bootTimestamp="1")
        for text in (b"brokerName=broker-a\nbrokerRole=SLAVE\n", b"brokerName=broker-x\nbrokerRole=SYNC_MASTER\n"):
            self.network.answers[OTHER, CONFIG] = RemotingCommand.response(body=text)
            self.assertFalse(self.check(), text)

    def test_broker_that_tells_nothing_of_itself_counts_as_master(self):
        self.network.answers[OTHER, INFO] = RemotingCommand.response(1, "no permission")
        self.network.answers[OTHER, CONFIG] = RemotingCommand.response(1, "no permission")
        self.assertTrue(self.check())

    def test_switched_off(self):
        self.broker.settings.broker.single_master_check = False
        self.network.rocketd("1001-a")
        self.assertFalse(self.check())
        self.successResultOf(Deferred.fromCoroutine(self.single.before_start([OTHER])))

    def test_check_is_repeated(self):
        self.single.start()
        self.network.rocketd("1001-a")
        self.assertFalse(self.single.refuses)
        self.clock.advance(CHECK_SECONDS)
        self.assertTrue(self.single.refuses)
        self.single.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class BeforeStartTests(SingleMasterTestCase):
    def before_start(self):
        return Deferred.fromCoroutine(self.single.before_start([OTHER]))

    def test_live_master_earlier_or_later_is_refused_and_named(self):
        for instance in ("1-a", "2000-a"):
            self.network.rocketd(instance)
            error = self.failureResultOf(self.before_start(), SecondMasterError).value
            self.assertIn(f"another master of broker-a is registered and answers at {OTHER}", str(error))

    def test_dead_master_is_not(self):
        self.successResultOf(self.before_start())
