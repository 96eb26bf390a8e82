"""How the producers and consumers of a process share instances, and which client id each has."""

from twisted.internet.defer import Deferred

from rocketd.client.consumer.membership.missing_topics import ROUTE_LOOK_SECONDS, ROUTE_LOOKS
from rocketd.client.errors import GroupInUseError, IllegalOptionError, NotStartedError
from rocketd.client.faces.push import ConsumerFace, ProducerFace
from rocketd.client.instance import registry
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import ClientConfig
from tests.support.client_cluster import ClientTestCase, Cluster, ThreadedClock


class RegistryTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.made = []

        def make(reactor, config):
            instance = ClientInstance(reactor, config, remoting=Cluster())
            instance.remoting.present = (instance.client_id,)
            self.made.append(instance)
            return instance

        self.patch(registry, "ClientInstance", make)

    def run_coroutine(self, coroutine):
        return Deferred.fromCoroutine(coroutine)

    def open(self, face):
        """Open a face, and close it at the end of the test."""
        self.end_of(face._bring_up(self.clock, self.run_coroutine))
        self.addCleanup(lambda: self.close(face))
        return face

    def close(self, face):
        self.end_of(face._bring_down())

    def fail_to_open(self, face, error):
        opening = Deferred.fromCoroutine(face._bring_up(self.clock, self.run_coroutine))
        self.clock.pump([ROUTE_LOOK_SECONDS] * ROUTE_LOOKS)
        while not opening.called:
            self.clock.run_call()
        return self.failureResultOf(opening, error).value

    def producer(self, group="pg", **config):
        return ProducerFace(group, ClientConfig(**{"namesrv": "ns:9876", **config}))

    def consumer(self, group="cg", *, broadcast=False, **config):
        return ConsumerFace(
            group,
            ClientConfig(**{"namesrv": "ns:9876", **config}),
            topics="T",
            handler=print,
            broadcast=broadcast,
            offset_directory=self.mktemp(),
        )


class SharingTests(RegistryTestCase):
    def test_members_with_equal_configs_share_an_instance(self):
        faces = [self.open(face) for face in (self.producer("one"), self.producer("two"), self.consumer("one"))]
        self.assertEqual([face._engine.instance for face in faces], self.made * 3)
        (instance,) = self.made
        self.assertEqual((sorted(instance.producers), list(instance.consumers)), (["one", "two"], ["one"]))

    def test_members_with_other_configs_get_separate_instances(self):
        for face in (self.producer(), self.producer("two", namesrv="other:9876"), self.producer("three", timeout=9)):
            self.open(face)
        self.assertEqual(len({instance.client_id for instance in self.made}), 3)

    def test_members_on_another_reactor_get_separate_instances(self):
        self.open(self.producer("one"))
        self.clock, first = ThreadedClock(), self.clock
        self.open(self.producer("two"))
        self.assertEqual([instance.reactor for instance in self.made], [first, self.clock])

    def test_last_close_closes_the_connections(self):
        producer, consumer = self.open(self.producer()), self.open(self.consumer())
        (instance,) = self.made
        self.close(producer)
        self.assertFalse(instance.remoting.closed)
        self.close(consumer)
        self.assertTrue(instance.remoting.closed)

    def test_open_after_last_close_gets_new_instance(self):
        self.close(self.open(self.producer()))
        self.open(self.producer())
        self.assertEqual([instance.remoting.closed for instance in self.made], [True, False])
        self.assertNotEqual(*[instance.client_id for instance in self.made])

    def test_failed_start_releases_its_instance(self):
        kept = self.open(self.producer())
        unknown = ConsumerFace("cg", ClientConfig(namesrv="ns:9876"), topics="Nope", handler=print, missing="raise")
        self.fail_to_open(unknown, Exception)
        (instance,) = self.made
        self.assertEqual((instance.consumers, instance.remoting.closed), ({}, False))
        self.close(kept)
        self.assertTrue(instance.remoting.closed)


class SecondMemberTests(RegistryTestCase):
    def test_second_member_gets_separate_instance(self):
        for make in (self.producer, self.consumer):
            first, second = self.open(make()), self.open(make())
            self.assertNotEqual(first._engine.instance.client_id, second._engine.instance.client_id)
        self.assertEqual(len(self.made), 2)

    def test_second_member_closes_only_its_connections(self):
        first, second = self.open(self.producer()), self.open(self.producer())
        instance = second._engine.instance
        self.close(second)
        self.assertEqual((instance.remoting.closed, first._engine.instance.remoting.closed), (True, False))

    def test_second_member_of_named_instance_is_refused(self):
        for make in (self.producer, self.consumer):
            first = self.open(make(instance_name="me"))
            second = make(instance_name="me")
            error = self.fail_to_open(second, GroupInUseError)
            self.assertIn(first.group, str(error))
            self.assertIn("instance_name", str(error))
            self.assertRaises(NotStartedError, lambda second=second: second._engine)
        (instance,) = self.made
        self.assertFalse(instance.remoting.closed)

    def test_member_of_other_group_shares_named_instance(self):
        self.open(self.producer(instance_name="me"))
        self.open(self.producer("two", instance_name="me"))
        (instance,) = self.made
        self.assertTrue(instance.client_id.endswith("@me"))


class InstanceNameTests(RegistryTestCase):
    def test_other_options_with_the_same_name_are_refused(self):
        self.open(self.producer(instance_name="me"))
        error = self.fail_to_open(self.producer("two", instance_name="me", timeout=9), IllegalOptionError)
        self.assertIn("instance_name='me'", str(error))
        self.assertEqual(len(self.made), 1)

    def test_same_name_with_other_servers_or_unit_is_another_client(self):
        self.open(self.producer(instance_name="me"))
        self.open(self.producer(instance_name="me", namesrv="other:9876"))
        self.open(self.producer(instance_name="me", unit_name="unit"))
        self.assertEqual(len(self.made), 3)

    def test_options_may_change_when_the_name_is_free_again(self):
        self.close(self.open(self.producer(instance_name="me")))
        self.open(self.producer(instance_name="me", timeout=9))
        self.assertEqual(len(self.made), 2)


class BroadcastTests(RegistryTestCase):
    def test_a_consumer_without_an_instance_name_has_apaches(self):
        consumer = self.open(self.consumer(broadcast=True, client_ip="10.0.0.9"))
        self.assertEqual(consumer._engine.instance.client_id, "10.0.0.9@DEFAULT")

    def test_second_broadcast_consumer_of_group_is_refused(self):
        self.open(self.consumer(broadcast=True))
        self.fail_to_open(self.consumer(broadcast=True), GroupInUseError)

    def test_given_instance_name_stays(self):
        consumer = self.open(self.consumer(broadcast=True, instance_name="me"))
        self.assertTrue(consumer._engine.instance.client_id.endswith("@me"))

    def test_instance_of_broadcast_consumer_is_not_shared(self):
        self.open(self.consumer(broadcast=True))
        self.open(self.producer())
        self.assertEqual(len(self.made), 2)
