"""Wrong calls of clients and statements for another face: the errors name the public class and the right call."""

import asyncio

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

import rocketd.client as twisted_face
from rocketd.client import ClientConfig, Message, aio, sync
from rocketd.client.faces.wrong_use import explained

FACES = (twisted_face, aio, sync)
NOWHERE = "127.0.0.1:1"
MESSAGE = Message("T", b"x")


class CallTests(SynchronousTestCase):
    def refused(self, call, *arguments, **keywords):
        def made():
            result = call(*arguments, **keywords)
            return asyncio.run(result) if asyncio.iscoroutine(result) else result

        return str(self.assertRaises(TypeError, made))

    def test_fields_of_the_message_given_to_a_send_are_named_as_such(self):
        for face in FACES:
            producer = face.Producer("g", NOWHERE)
            name = f"{face.__name__}.Producer"
            for method, first in (
                ("send", MESSAGE),
                ("send_oneway", MESSAGE),
                ("send_batch", [MESSAGE]),
                ("send_in_transaction", MESSAGE),
                ("request", MESSAGE),
            ):
                for field in ("tags", "keys", "delay_level", "properties", "deliver_after"):
                    self.assertEqual(
                        self.refused(getattr(producer, method), first, **{field: "x"}),
                        f"{name}.{method} has no parameter '{field}': it belongs to the message, "
                        f"Message(topic, body, {field}=)",
                    )
            self.assertEqual(
                self.refused(producer.send, MESSAGE, headers={}),
                f"{name}.send has no parameter 'headers': for the message, use properties=",
            )
            self.assertTrue(self.refused(producer.send, MESSAGE, time_out=3).endswith("; did you mean timeout?"))

    def test_wrong_number_of_arguments_is_answered_with_the_parameters(self):
        for face in FACES:
            self.assertEqual(
                self.refused(face.Producer("g", NOWHERE).send, "T", b"x"),
                f"{face.__name__}.Producer.send: too many positional arguments; "
                "its parameters are (message, *, queue=, selector=, key=, timeout=)",
            )

    def test_client_without_a_group_is_answered_with_the_public_class(self):
        for face in FACES:
            for name in ("Producer", "Consumer", "LitePullConsumer", "PullConsumer"):
                text = self.refused(getattr(face, name))
                self.assertRegex(
                    text, f"^{face.__name__}.{name}: missing a required argument: 'group'; .*group, cluster="
                )
            self.assertRegex(self.refused(face.Admin, NOWHERE, 1), f"^{face.__name__}.Admin: .* are \\(cluster=\\)$")

    def test_config_given_addresses_by_place_is_answered_with_its_options(self):
        self.assertRegex(
            self.refused(ClientConfig, NOWHERE),
            r"^ClientConfig: too many positional arguments; .*\(\*, namesrv=, .*\.\.\.\)$",
        )

    def test_error_inside_a_method_stays(self):
        class Clients:
            @explained
            def plain(self, number):
                raise TypeError("inside")

            @explained
            async def coroutine(self, number):
                raise TypeError("inside")

        self.assertEqual(self.refused(Clients().plain, 1), "inside")
        self.assertEqual(self.refused(Clients().coroutine, 1), "inside")

    def test_method_of_the_sync_engine_is_named_by_the_public_class(self):
        with sync.Admin(NOWHERE) as admin:
            text = self.refused(admin.create_topic, "T", 4)
        self.assertRegex(
            text, r"^rocketd.client.sync.Admin.create_topic: too many positional .* are \(topic, \*, queues="
        )

    def test_method_of_the_aio_engine_is_named_by_the_public_class(self):
        async def run():
            async with aio.Admin(NOWHERE) as admin:
                await admin.create_topic("T", 4)

        self.assertRegex(self.refused(run), "^rocketd.client.aio.Admin.create_topic: too many positional arguments; ")


class TwistedCallTests(TestCase):
    def test_method_of_the_engine_is_named_by_the_public_class(self):
        async def run():
            async with twisted_face.Admin(NOWHERE) as admin:
                error = self.assertRaises(TypeError, admin.create_topic, "T", 4)
            self.assertRegex(str(error), "^rocketd.client.Admin.create_topic: too many positional arguments; ")

        return Deferred.fromCoroutine(run())


class StatementTests(SynchronousTestCase):
    def refused(self, statement):
        return str(self.assertRaises(TypeError, statement))

    def test_with_of_another_face_names_the_right_one(self):
        for face, advice in (
            (aio, "use 'async with', or rocketd.client.sync"),
            (twisted_face, "use 'async with' in a coroutine, or rocketd.client.sync"),
        ):

            def enter(client):
                with client:
                    raise AssertionError

            self.assertEqual(
                self.refused(lambda face=face: enter(face.Producer("g", NOWHERE))),
                f"'with' is not for a {face.__name__}.Producer: {advice}",
            )

    def test_async_with_of_a_blocking_client_names_the_right_one(self):
        async def enter():
            async with sync.Admin(NOWHERE):
                raise AssertionError

        self.assertEqual(
            self.refused(lambda: asyncio.run(enter())),
            "'async with' is not for a rocketd.client.sync.Admin: use 'with', or rocketd.client.aio",
        )

    def test_iteration_of_another_face_names_the_right_one(self):
        for name in ("Consumer", "LitePullConsumer"):
            for face, advice in ((aio, "use 'async for', or"), (twisted_face, "use 'async for' in a coroutine, or")):
                consumer = getattr(face, name)("g", NOWHERE, topics="T")
                self.assertEqual(
                    self.refused(lambda consumer=consumer: list(consumer)),
                    f"'for' is not for a {face.__name__}.{name}: {advice} rocketd.client.sync",
                )

            async def iterate(name=name):
                async for _ in getattr(sync, name)("g", NOWHERE, topics="T"):
                    raise AssertionError

            self.assertEqual(
                self.refused(lambda iterate=iterate: asyncio.run(iterate())),
                f"'async for' is not for a rocketd.client.sync.{name}: use 'for', or rocketd.client.aio",
            )
