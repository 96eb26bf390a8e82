"""Of two running masters of one name, one steps down. Recognition of rivals."""

import os

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.replication.group import BrokerGroup, Instance
from rocketd.broker.replication.single_master import CHECK_SECONDS, LIFT_SECONDS, SecondMasterError, SingleMaster
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.remoting.bodies.tables import BrokerData, ClusterInfo, KVTable
from rocketd.remoting.errors import RemotingConnectError, RemotingTimeoutError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import PutStatus
from rocketd.store.testing import make_message
from tests.support.broker import SmallBroker

OTHER = "10.0.0.2:10911"
INFO, CONFIG, BROKERS = 28, 26, 106


class Network:
    """Answers by address and code; all others do not answer."""

    class name_servers:  # noqa: N801 - an attribute of the real client
        addresses = ("n1", "n2")

    def __init__(self):
        self.answers = {}
        self.troubles = []
        self.asked = 0

    def invoke_sync(self, address, request, timeout_ms):
        self.asked += 1
        if self.troubles:
            return fail(self.troubles.pop()())
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

    def resume(self):
        self.held = False


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
        self.broker.settings.store.ha_allowed_addresses = "10.0.0.0/24"
        peers = TrustedPeers(self.broker.settings.store, self.clock)
        self.group = BrokerGroup(self.broker, self.network, own, self.clock, peers)
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
    def test_members_are_brokers_of_same_name_at_any_name_server(self):
        self.network.registered("n1", **{"broker-a": {0: self.broker.address, 2: "10.0.0.5:10911"}})
        members = self.successResultOf(Deferred.fromCoroutine(self.group.members()))
        self.assertEqual(members, ([OTHER], ["10.0.0.5:10911", "10.0.0.3:10911"], True))

    def test_closed_connections_and_late_timeouts_are_tried_again(self):
        def hang():
            self.clock.advance(5)
            return RemotingTimeoutError("n2", 2000)

        for trouble in (lambda: RemotingConnectError("n2", "closed"), hang):
            self.network.troubles = [trouble]
            self.network.asked = 0
            members = self.successResultOf(Deferred.fromCoroutine(self.group.masters_at("n2")))
            self.assertEqual((members, self.network.asked), ([OTHER], 2))

    def test_silent_side_is_asked_once(self):
        def be_silent():
            self.clock.advance(2.1)
            return RemotingTimeoutError("n2", 2000)

        self.network.troubles = [be_silent]
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.group.masters_at("n2"))), [])

    def test_master_registered_at_name_server_is_checked_before_registration_there(self):
        self.network.rocketd("1001-a")
        self.successResultOf(self.single.check_at("n1"))
        self.assertFalse(self.single.refuses)
        self.successResultOf(self.single.check_at("n2"))
        self.assertTrue(self.broker.registration.held)

    def test_nonsense_of_name_server_is_ignored(self):
        self.network.answers["n2", BROKERS] = RemotingCommand.response(body=b"[1")
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.group.members())), ([], [], False))

    def test_silent_master_is_not_a_rival(self):
        self.assertFalse(self.check())

    def test_later_rocketd_master_makes_this_one_step_down(self):
        self.network.rocketd("1001-a")
        self.assertTrue(self.check())
        self.assertTrue(self.broker.registration.held)
        (result,) = self.broker.store.put_messages([make_message(b"x")])
        self.assertEqual(result.status, PutStatus.STEPPED_DOWN)
        self.assertIn(f"another master of broker-a is registered and answers at {OTHER}", result.cause)
        self.assertIn("restart this broker as the slave of the other", self.lines(LogLevel.critical)[0])

    def test_earlier_rocketd_master_is_logged_once_and_is_left_to_step_down(self):
        self.network.rocketd("999-z")
        for _ in range(3):
            self.assertFalse(self.check())
        (line,) = self.lines(LogLevel.error)
        self.assertIn(f"alive at {OTHER}; it was started before this one", line)

    def test_one_of_masters_started_at_once_steps_down(self):
        self.network.rocketd("1000-a")
        self.assertFalse(self.check())
        self.network.rocketd("1000-c")
        self.assertTrue(self.check())

    def test_same_broker_at_other_address_is_not_a_rival(self):
        self.network.rocketd("1000-b")
        self.assertFalse(self.check())

    def test_slaves_other_names_and_stepped_down_are_not_rivals(self):
        for changes in ({"role": "SLAVE"}, {"name": "broker-x"}, {"refuses": "true"}):
            self.network.rocketd("1001-a", **changes)
            self.assertFalse(self.check(), changes)

    def test_apache_master_makes_this_one_step_down(self):
        self.network.info(bootTimestamp="1")
        self.network.answers[OTHER, CONFIG] = RemotingCommand.response(
            body=b"brokerName=broker-a\nbrokerRole=SYNC_MASTER\n"
        )
        self.assertTrue(self.check())

    def test_apache_slave_or_other_name_is_not_a_rival(self):
        self.network.info(bootTimestamp="1")
        for text in (b"brokerName=broker-a\nbrokerRole=SLAVE\n", b"brokerName=broker-x\nbrokerRole=SYNC_MASTER\n"):
            self.network.answers[OTHER, CONFIG] = RemotingCommand.response(body=text)
            self.assertFalse(self.check(), text)

    def test_peer_of_unknown_role_is_logged_and_not_a_rival(self):
        # A name server, for one: anybody may register its address.
        unknown = RemotingCommand.response(3, "request code not supported")
        self.network.answers[OTHER, INFO] = unknown
        for config in (
            unknown,
            None,
            RemotingCommand.response(),
            RemotingCommand.response(body=b"brokerName=broker-a"),
            RemotingCommand.response(body=b"brokerRole=ASYNC_MASTER"),
        ):
            self.network.answers[OTHER, CONFIG] = config
            self.assertFalse(self.check(), config)
        (line,) = self.lines(LogLevel.warn)
        self.assertIn(f"{OTHER} is registered as a master of broker-a, but does not confirm it", line)
        self.assertIn("3: request code not supported", line)

    def test_broker_with_nonsense_status_is_not_a_rival(self):
        self.network.answers[OTHER, CONFIG] = RemotingCommand.response(body=b"brokerName=x")
        for body in (b"[1", b'{"table":{"haInstance":"x"}}', b'{"table":{"commitLogMaxOffset":"x"}}'):
            self.network.answers[OTHER, INFO] = RemotingCommand.response(body=body)
            self.assertFalse(self.check(), body)

    def test_answering_master_at_host_that_is_not_trusted_is_named_and_not_asked(self):
        self.broker.settings.store.ha_allowed_addresses = "10.0.0.3"
        self.network.registered("n1", **{"broker-a": {0: OTHER}})
        self.network.rocketd("1001-a")
        self.assertFalse(self.check())
        self.assertEqual(self.network.asked, 2)
        self.successResultOf(self.single.check_at("n2"))
        self.assertFalse(self.single.refuses)
        members = self.successResultOf(Deferred.fromCoroutine(self.group.members()))
        self.assertEqual(members, ([], ["10.0.0.3:10911"], True))
        (line,) = self.lines(LogLevel.warn)
        self.assertIn(f"name servers know brokers of this name at {OTHER}, which are ignored", line)
        self.broker.settings.store.ha_allowed_addresses = "10.0.0.2"
        self.assertTrue(self.check())

    def test_ignored_masters_and_slaves_are_named_together(self):
        self.broker.settings.store.ha_allowed_addresses = "10.0.0.9"
        self.network.registered("n1", **{"broker-a": {0: OTHER}})
        members = self.successResultOf(Deferred.fromCoroutine(self.group.members()))
        self.assertEqual(members, ([], [], True))
        (line,) = self.lines(LogLevel.warn)
        self.assertIn(f"at {OTHER}, 10.0.0.3:10911, which are ignored", line)

    def test_disabled_check_finds_no_rival(self):
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


class SlaveTests(SingleMasterTestCase):
    def is_slave(self):
        return self.successResultOf(Deferred.fromCoroutine(self.group.is_slave(OTHER)))

    def test_rocketd_status_tells_slave_of_same_name(self):
        for role, name, expected in (
            ("SLAVE", "broker-a", True),
            ("SLAVE", "broker-x", False),
            ("ASYNC_MASTER", "broker-a", False),
        ):
            self.network.rocketd("1-a", role=role, name=name)
            self.assertEqual(self.is_slave(), expected, (role, name))

    def test_apache_settings_tell_slave_of_same_name(self):
        self.network.info(bootTimestamp="1")
        for text, expected in (
            (b"brokerName=broker-a\nbrokerRole=SLAVE\n", True),
            (b"brokerName=broker-x\nbrokerRole=SLAVE\n", False),
            (b"brokerName=broker-a\nbrokerRole=SYNC_MASTER\n", False),
        ):
            self.network.answers[OTHER, CONFIG] = RemotingCommand.response(body=text)
            self.assertEqual(self.is_slave(), expected, text)

    def test_silent_refusing_or_nonsense_broker_is_not_a_slave(self):
        self.assertFalse(self.is_slave())
        for info in (RemotingCommand.response(3, "what?"), RemotingCommand.response(body=b"[1")):
            self.network.answers[OTHER, INFO] = info
            self.assertFalse(self.is_slave())


class GoneTests(SingleMasterTestCase):
    """The other master is gone again."""

    def setUp(self):
        super().setUp()
        self.network.registered("n1")
        self.single.start()
        self.addCleanup(self.single.stop)

    def step_down(self, **table):
        self.network.info(haInstance="1001-a", haRole="ASYNC_MASTER", haBrokerName="broker-a", **table)
        self.pass_seconds(CHECK_SECONDS)
        self.assertTrue(self.single.refuses)

    def pass_seconds(self, seconds):
        self.clock.pump([CHECK_SECONDS] * int(seconds / CHECK_SECONDS))

    def leave(self):
        del self.network.answers[OTHER, INFO]
        self.network.registered("n2")

    def test_departed_master_without_log_lets_this_one_serve_again(self):
        for table in ({}, {"commitLogMaxOffset": "0"}):
            self.step_down(**table)
            self.leave()
            self.pass_seconds(LIFT_SECONDS)
            self.assertTrue(self.single.refuses)
            self.pass_seconds(CHECK_SECONDS)
            self.assertFalse(self.single.refuses)
            self.assertFalse(self.broker.registration.held)
            (result,) = self.broker.store.put_messages([make_message(b"x")])
            self.assertEqual(result.status, PutStatus.PUT_OK)
            self.assertIn("accepts messages again", self.lines(LogLevel.warn)[-1])
            self.network.registered("n2", **{"broker-a": {0: OTHER}})

    def test_departed_master_with_log_keeps_this_one_refusing(self):
        self.step_down(commitLogMaxOffset="7")
        self.step_down(commitLogMaxOffset="0")
        self.leave()
        self.pass_seconds(10 * LIFT_SECONDS)
        self.assertTrue(self.single.refuses)
        (line,) = self.lines(LogLevel.error)
        self.assertIn("its log ended at offset 7", line)

    def test_reappearing_master_restarts_wait(self):
        self.step_down()
        info = self.network.answers[OTHER, INFO]
        self.leave()
        self.pass_seconds(LIFT_SECONDS)
        self.network.answers[OTHER, INFO] = info
        self.pass_seconds(CHECK_SECONDS)
        self.leave()
        self.pass_seconds(LIFT_SECONDS)
        self.assertTrue(self.single.refuses)

    def test_answering_or_registered_master_is_not_gone(self):
        self.step_down()
        info = self.network.answers.pop((OTHER, INFO))
        self.pass_seconds(2 * LIFT_SECONDS)
        self.assertTrue(self.single.refuses)
        self.network.answers[OTHER, INFO] = info
        self.network.registered("n2")
        self.pass_seconds(2 * LIFT_SECONDS)
        self.assertTrue(self.single.refuses)

    def test_unreachable_name_server_keeps_this_one_refusing(self):
        self.step_down()
        self.leave()
        del self.network.answers["n1", BROKERS]
        self.pass_seconds(2 * LIFT_SECONDS)
        self.assertTrue(self.single.refuses)


class BeforeStartTests(SingleMasterTestCase):
    def before_start(self):
        return Deferred.fromCoroutine(self.single.before_start([OTHER]))

    def test_live_master_earlier_or_later_is_refused_and_named(self):
        for instance in ("1-a", "2000-a"):
            self.network.rocketd(instance)
            error = self.failureResultOf(self.before_start(), SecondMasterError).value
            self.assertIn(f"another master of broker-a is registered and answers at {OTHER}", str(error))

    def test_dead_master_is_not_refused(self):
        self.successResultOf(self.before_start())
