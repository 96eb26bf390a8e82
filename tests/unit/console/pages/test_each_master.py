"""Silent brokers: sign-in and pages go on with the answers of the others."""

from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import RocketMQError
from rocketd.console.cluster import _answers
from rocketd.console.pages.each_master import each_master
from rocketd.console.pages.groups import group_list
from rocketd.console.pages.visit import Visit
from rocketd.remoting.bodies.tables import KVTable, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand

SECONDS = 3.0


class SilentBrokerTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.cluster = SimpleNamespace(admin=self, client=self)
        self.config = SimpleNamespace(namespace="")
        self.talking = {"a4"}

    async def brokers(self):
        return [SimpleNamespace(broker_name=f"b{number}", broker_addrs={0: f"a{number}"}) for number in range(5)]

    async def ask(self, address, code, header=None):
        if address not in self.talking:
            await deferLater(self.clock, SECONDS)
            raise RocketMQError("silent")
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return RemotingCommand(0, body=KVTable().encode())
        return RemotingCommand(0, body=SubscriptionGroupWrapper({"shop": SubscriptionGroupConfig("shop")}).encode())

    def result(self, work):
        """Return the result of a coroutine, which waits for silent brokers once."""
        done = Deferred.fromCoroutine(work)
        self.assertNoResult(done)
        self.clock.advance(SECONDS)
        return self.successResultOf(done)

    def test_sign_in_asks_all_masters_at_once(self):
        self.assertEqual(self.result(_answers(self.cluster)), (["b4"], []))

    def test_groups_of_the_other_brokers_are_shown_with_a_notice(self):
        view = self.result(group_list(Visit(self.cluster)))
        texts = [getattr(element, "text", "") for element in view.elements]
        self.assertEqual(texts[:2], ["The answer of b0 is missing: silent", "The answer of b1 is missing: silent"])
        self.assertIn("1 groups", [getattr(element, "caption", "") for element in view.elements])

    def test_error_is_raised_if_no_master_answers(self):
        self.talking = set()

        async def ask(address):
            await self.ask(address, 0)

        done = Deferred.fromCoroutine(each_master(self.cluster, ask))
        self.clock.advance(SECONDS)
        self.failureResultOf(done, RocketMQError)
