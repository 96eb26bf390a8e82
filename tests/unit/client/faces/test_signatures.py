"""The three faces of the client offer the same: classes, methods, parameters, defaults and descriptions."""

import dataclasses
import inspect
from typing import get_origin, get_type_hints

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

import rocketd.client as twisted_face
from rocketd.client import aio, sync
from rocketd.client.errors import IllegalGroupError, IllegalOptionError, NotStartedError
from rocketd.client.faces.lifecycle import Face
from rocketd.remoting.bodies.tables import MessageQueue

FACES = (twisted_face, aio, sync)
CLASSES = ("Producer", "Consumer", "LitePullConsumer", "PullConsumer", "Admin")
CONTEXT = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
OPENING = ("open", "close", "start", "stop")
NOT_WAITED_FOR = {
    "Producer": {"stats"},
    "Consumer": {
        "stats",
        "subscribe",
        "unsubscribe",
        "queues",
        "position",
        "suspend",
        "resume",
        "pause",
        "unpause",
        "set_concurrency",
        "finish",
    },
    "LitePullConsumer": {"stats", "subscribe", "unsubscribe", "queues", "position", "pause", "unpause"},
    "PullConsumer": {"update_consume_offset"},
    "Admin": {"dead_letters"},
}
"""Methods that never wait if they run in the reactor's thread, and iterators."""


def made(face, name):
    return getattr(face, name)(*(() if name == "Admin" else ("group",)), "127.0.0.1:1")


def methods(cls):
    found = {}
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        public = not name.startswith("_")
        if getattr(value, "__name__", "") == "refuse":  # a statement of another face
            continue
        if inspect.isfunction(value) and (public or name in CONTEXT or name in CONTEXT.values()):
            found[CONTEXT.get(name, name)] = value
    return found


def shape(function):
    """Parameters with kinds, defaults and types."""
    return [
        (each.name, each.kind, each.default, str(each.annotation))
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]


class SignatureTests(SynchronousTestCase):
    def test_clients_with_equal_options_differ(self):
        for face in FACES:
            for name in CLASSES:
                one, other = made(face, name), made(face, name)
                self.assertEqual(len({one, other}), 2, (face, name))

    def test_same_classes(self):
        for face in FACES:
            exported = {name: getattr(face, name) for name in face.__all__}
            found = {name for name, value in exported.items() if inspect.isclass(value) and issubclass(value, Face)}
            self.assertEqual(found, set(CLASSES), face)

    def test_same_methods_with_the_same_parameters_and_descriptions(self):
        for name in CLASSES:
            expected, *others = [methods(getattr(face, name)) for face in FACES]
            self.assertGreater(len(expected), 4)
            for other in others:
                self.assertEqual(set(other), set(expected), name)
                for method, function in expected.items():
                    self.assertEqual(shape(other[method]), shape(function), f"{name}.{method}")
                    self.assertEqual(inspect.getdoc(other[method]), inspect.getdoc(function), f"{name}.{method}")
                    if not method.startswith("_"):
                        self.assertTrue(inspect.getdoc(function), f"{name}.{method}")

    def test_same_options_and_descriptions(self):
        for name in CLASSES:
            expected, *others = [getattr(face, name) for face in FACES]
            for other in others:
                self.assertEqual(shape(other), shape(expected), name)
                self.assertEqual(other.__doc__, expected.__doc__, name)
                self.assertEqual(
                    [(field.name, field.kw_only) for field in dataclasses.fields(other)],
                    [(field.name, field.kw_only) for field in dataclasses.fields(expected)],
                )

    def test_twisted_fires_aio_is_awaited_sync_returns(self):
        for name in CLASSES:
            for method in methods(getattr(twisted_face, name)):
                if method.startswith("_") or method in OPENING or method in NOT_WAITED_FOR.get(name, ()):
                    continue
                with self.subTest(name=name, method=method):
                    self.assertTrue(inspect.iscoroutinefunction(getattr(getattr(aio, name), method)))
                    self.assertFalse(inspect.iscoroutinefunction(getattr(getattr(sync, name), method)))
                    self.assertFalse(inspect.iscoroutinefunction(getattr(getattr(twisted_face, name), method)))
                    plain = getattr(twisted_face, name).__dict__[method]
                    if not hasattr(plain, "__wrapped__"):
                        self.assertIs(get_origin(get_type_hints(plain)["return"]), Deferred)

    def test_methods_without_wait_are_plain_functions_in_all_faces(self):
        for name, plain in NOT_WAITED_FOR.items():
            for face in FACES:
                for method in plain:
                    self.assertFalse(inspect.iscoroutinefunction(getattr(getattr(face, name), method)))


class UseTests(SynchronousTestCase):
    def test_methods_before_open_raise(self):
        queue = MessageQueue("T", "a", 0)
        for face in (twisted_face, sync):
            for name, method, arguments in (
                ("Producer", "publish_queues", ("T",)),
                ("Consumer", "queues", ()),
                ("LitePullConsumer", "poll", ()),
                ("LitePullConsumer", "commit", ()),
                ("LitePullConsumer", "queues", ()),
                ("PullConsumer", "pull", (queue, None, 0)),
                ("PullConsumer", "update_consume_offset", (queue, 0)),
                ("Admin", "max_offset", (queue,)),
            ):
                with self.assertRaises(NotStartedError):
                    getattr(made(face, name), method)(*arguments)

    def test_close_before_open_does_nothing(self):
        for name in CLASSES:
            self.assertIsNone(self.successResultOf(made(twisted_face, name).close()))
            self.assertIsNone(made(sync, name).close())

    def test_names_and_options_are_checked_at_construction(self):
        for face in FACES:
            for name in CLASSES[:-1]:
                with self.assertRaises(IllegalGroupError):
                    getattr(face, name)("no group")
            for name in CLASSES[1:-1]:
                with self.assertRaises(IllegalGroupError):
                    getattr(face, name)("g" * 121)
            face.Producer("g" * 121)
            with self.assertRaises(IllegalOptionError):
                face.LitePullConsumer("g", pull_batch=0)
            with self.assertRaises(IllegalOptionError):
                face.PullConsumer("g", persist_interval=0)
            with self.assertRaises(IllegalOptionError):
                face.Admin("no address")
