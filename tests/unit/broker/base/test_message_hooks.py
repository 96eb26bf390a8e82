"""Hooks around sends and consumption: contexts, allowed changes, failures."""

import os
import re
import sys
from types import SimpleNamespace

from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.broker.base.hook_contexts import ConsumeMessageContext, SendMessageContext
from rocketd.broker.base.interfaces import IConsumeMessageHook, IMessageHookPlugin, ISendMessageHook
from rocketd.broker.pull.processor import PullMessageProcessor
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.broker.send.send_back import SendBackProcessor
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.serving import plugins as remoting_plugins
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_message, decode_messages
from tests.support.broker import RecordingConnection, SmallBroker, job_of
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "howto" / "message-hooks.md"
SEND = {
    "a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "17", "h": "0", "i": "TAGS\x01A", "m": "false",
}  # fmt: skip
PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "1", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1", "subscription": "*",
}  # fmt: skip


@implementer(ISendMessageHook, IConsumeMessageHook)
class Hook:
    """Records its calls. ``properties`` replaces those of messages."""

    def __init__(self, properties=None):
        self.properties = properties
        self.told = []

    def send_message_before(self, context):
        self.told.append(("before", context.topic, context.properties, context.code))
        if self.properties is not None:
            context.properties = self.properties
        context.trace = "mine"

    def send_message_after(self, context):
        self.told.append(("after", context))

    def consume_message_before(self, context):
        self.told.append(("pulled", context))

    def consume_message_after(self, context):
        self.told.append(("given back", context))


@implementer(ISendMessageHook)
class Broken:
    def send_message_before(self, context):
        raise ValueError("no")

    def send_message_after(self, context):
        raise ValueError("no")


@implementer(IMessageHookPlugin)
class Plugin:
    def __init__(self, name, hook):
        self.name, self._hook = name, hook

    def create_hook(self, broker):
        if isinstance(self._hook, Exception):
            raise self._hook
        return self._hook


class HooksTestCase(SynchronousTestCase):
    options = {}

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), **self.options)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.broker.groups.update(SubscriptionGroupConfig("G"))
        self.connection = RecordingConnection()
        self.hook = Hook()
        self.broker.message_hooks.add(self.hook)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def send(self, flag=0, body=b"hello", **changes):
        processor = SendMessageProcessor(self.broker)
        command = RemotingCommand(310, {**SEND, **changes}, body, flag=flag)
        processor.process_jobs([job_of(processor, self.connection, command)])
        answers = self.connection.answers()
        self.broker.settle()
        return answers[0] if answers else None

    def stored(self):
        log = self.broker.store.commit_log
        return decode_messages(log.select(0, log.max_offset))


class SendTests(HooksTestCase):
    def test_send_hook_is_called_before_and_after(self):
        answer = self.send()
        size = self.broker.store.max_physical_offset()
        self.assertEqual(
            self.hook.told,
            [
                ("before", "T", "TAGS\x01A", -1),
                (
                    "after",
                    SendMessageContext(
                        "P", "T", 1, "TAGS\x01A", 5, self.connection.address, 17, "127.0.0.1:10911", False, "mine",
                        0, None, answer.ext_fields["msgId"], 0, size,
                    ),
                ),
            ],
        )  # fmt: skip

    def test_send_hook_gets_refusal(self):
        answer = self.send(e="9")
        (_, context) = self.hook.told[1]
        self.assertEqual((context.code, context.remark), (answer.code, answer.remark))
        self.assertEqual((context.msg_id, context.queue_offset, context.stored_size), ("", -1, 0))
        self.assertNotEqual(answer.code, 0)

    def test_send_hook_gets_code_of_oneway(self):
        self.assertIsNone(self.send(flag=ONEWAY_FLAG))
        self.assertEqual(self.hook.told[1][1].code, 0)
        self.assertIsNone(self.send(flag=ONEWAY_FLAG, e="9"))
        self.assertEqual(self.hook.told[3][1].code, 1)

    def test_send_hook_may_replace_properties(self):
        self.broker.message_hooks.add(Hook("TAGS\x01B"))
        self.send()
        self.assertEqual(self.stored()[0].properties_map(), {"TAGS": "B", "CLUSTER": "DefaultCluster"})

    def test_failing_hook_is_logged_once_and_send_succeeds(self):
        self.broker.message_hooks.add(Broken())
        for _ in range(3):
            self.assertEqual(self.send().code, 0)
        self.assertEqual(len(self.hook.told), 6)
        failures = [formatEvent(event) for event in self.events if event["log_level"] is LogLevel.critical]
        self.assertEqual(len(failures), 2)
        self.assertIn("Broken.send_message_before", failures[0])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)

    def test_send_without_hooks_has_no_context(self):
        self.broker.message_hooks.send = ()
        self.assertEqual(self.send().code, 0)
        self.assertEqual(self.hook.told, [])


class SafeTests(HooksTestCase):
    options = {"brokerRole": "SYNC_MASTER"}

    def test_send_hook_after_comes_when_message_is_safe(self):
        self.assertIsNone(self.send())
        self.assertEqual([told[0] for told in self.hook.told], ["before"])
        ((_, callback),) = self.broker.replication.waiting
        callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.assertEqual(self.hook.told[1][1].code, self.connection.answer().code)
        self.assertEqual(self.hook.told[1][1].queue_offset, 0)


class ConsumeTests(HooksTestCase):
    def pull(self, **changes):
        self.hook.told.clear()
        processor = PullMessageProcessor(self.broker)
        processor.process_jobs([job_of(processor, self.connection, RemotingCommand(11, {**PULL, **changes}))])
        return self.connection.answers()

    def test_consume_hook_gets_answers_to_pulls(self):
        self.send()
        self.pull()
        size = self.broker.store.max_physical_offset()
        context = ConsumeMessageContext("G", "T", 1, self.connection.address, 0, 1, size)
        self.assertEqual(self.hook.told, [("pulled", context)])
        self.pull(queueOffset="1")
        context = ConsumeMessageContext("G", "T", 1, self.connection.address, 19)
        self.assertEqual(self.hook.told, [("pulled", context)])

    def test_consume_hook_is_not_called_for_held_pull(self):
        self.send()
        self.assertEqual(self.pull(queueOffset="1", sysFlag="6", suspendTimeoutMillis="15000"), [])
        self.assertEqual(self.hook.told, [])

    def test_consume_hook_gets_send_back(self):
        self.send()
        self.hook.told.clear()

        class Context:
            connection = self.connection

        fields = {"offset": "0", "group": "G", "delayLevel": "0", "originTopic": "T"}
        SendBackProcessor(self.broker).process(RemotingCommand(36, fields, version=407), Context)
        size = len(self.broker.store.look_message(self.stored()[1].physical_offset))
        self.assertEqual(decode_message(self.broker.store.look_message(0)).topic, "T")
        context = ConsumeMessageContext("G", "T", 1, self.connection.address, 0, 1, size)
        self.assertEqual(self.hook.told, [("given back", context)])


class LoadTests(HooksTestCase):
    def load(self, *plugins):
        self.patch(remoting_plugins, "find_plugins", lambda interface: iter(plugins))
        return self.broker.message_hooks.load(self.broker)

    def test_plugins_by_name(self):
        first, second = Hook(), Broken()
        self.assertEqual(self.load(Plugin("b", second), Plugin("a", first)), ["a", "b"])
        self.assertEqual(self.broker.message_hooks.send, (self.hook, first, second))
        self.assertEqual(self.broker.message_hooks.consume, (self.hook, first))

    def test_unloadable_plugin_is_skipped(self):
        self.assertEqual(self.load(Plugin("a", ValueError("no")), Plugin("b", object()), Plugin("c", Hook())), ["c"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError, TypeError)), 2)

    def test_load_without_plugins_is_empty(self):
        self.assertEqual(self.broker.message_hooks.load(self.broker), [])


class PageTests(HooksTestCase):
    """The package that the page shows."""

    def test_sample_plugin_of_page_works(self):
        files = dict(
            re.findall(r"^\*\*`([^`]+)`\*\*.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        )
        plugin, module = {}, {}
        exec(files["rocketd_meter.py"], module)
        exec(files["twisted/plugins/rocketd_meter_plugin.py"], plugin)
        self.patch(sys, "modules", {**sys.modules, "rocketd_meter": SimpleNamespace(**module)})
        self.patch(remoting_plugins, "find_plugins", lambda interface: iter([plugin["meter"]]))
        self.assertTrue(IMessageHookPlugin.providedBy(plugin["meter"]))
        self.assertEqual(self.broker.message_hooks.load(self.broker), ["meter"])
        meter = self.broker.message_hooks.send[1]
        self.send()
        self.assertEqual(self.stored()[0].properties_map()["METERED"], "yes")
        self.assertEqual(meter.sent, {"T": self.broker.store.max_physical_offset()})
        processor = PullMessageProcessor(self.broker)
        processor.process_jobs([job_of(processor, self.connection, RemotingCommand(11, PULL))])
        self.assertEqual(meter.got, {("G", "T"): self.broker.store.max_physical_offset()})
