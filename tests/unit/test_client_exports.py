"""What options and hooks need comes from rocketd.client, and the guide says what it has."""

import re
from inspect import isfunction
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from rocketd import client
from rocketd.client import hooks
from rocketd.client.config import ClientConfig
from rocketd.client.consumer.options import ConsumerOptions
from rocketd.client.producer.options import ProducerOptions
from rocketd.common.config import settings_of
from rocketd.remoting import channel_table, tls
from rocketd.remoting import client as remoting_client

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "python-client.md"


def classes_in(annotation):
    """All classes that stand in an annotation."""
    inner = get_args(annotation)
    if not inner:
        return {annotation} if hasattr(annotation, "__name__") else set()
    return {found for each in inner for found in classes_in(each)}


class ExportTests(SynchronousTestCase):
    def test_all_is_there(self):
        for name in client.__all__:
            self.assertTrue(hasattr(client, name), name)
        self.assertEqual(len(set(client.__all__)), len(client.__all__))

    def test_what_options_take_can_be_imported_with_them(self):
        elsewhere = {
            "Surroundings",
            "AllocationStrategy",
        }  # rocketd.testing makes the one, the guide says where the other is
        found = set()
        for options in (ClientConfig, ProducerOptions, ConsumerOptions):
            for annotation in get_type_hints(options).values():
                found |= classes_in(annotation)
        ours = {kind for kind in found if getattr(kind, "__module__", "").startswith("rocketd.")}
        names = {kind.__name__ for kind in ours} - elsewhere
        self.assertGreaterEqual(names, {"FlowLimits", "TlsConfig", "NettyClientConfig", "ProducerHook", "IRPCHook"})
        self.assertEqual(names - set(client.__all__), set())

    def test_what_hooks_are_given(self):
        public = {name for name, value in vars(hooks).items() if re.fullmatch(r"\w+(Context|er)Hook|\w+Context", name)}
        self.assertGreater(len(public), 3)
        for name in (*public, "ProducerHook", "ConsumerHook", "MessageType", "ConsumeReturnType"):
            self.assertIn(name, client.__all__)


class GuideTests(SynchronousTestCase):
    def setUp(self):
        self.text = GUIDE.read_text()

    def section(self, title):
        return re.search(rf"^#+ {title}\n(.*?)(?=^#+ )", self.text, re.MULTILINE | re.DOTALL)[1]

    def test_fields_of_configurations_that_clients_look_at(self):
        looked_at = {
            client.TlsConfig: (r"settings\.(test_mode_enable|client_\w+)", (tls,)),
            client.NettyClientConfig: (r"config\.(c\w+)", (channel_table, remoting_client)),
        }
        for group, (pattern, modules) in looked_at.items():
            sources = "".join(Path(module.__file__).read_text() for module in modules)
            names = set(re.findall(pattern, sources))
            self.assertGreater(len(names), 3)
            rows = [
                f"| `{each.attribute}` | {each.formula or f'`{getattr(group(), each.attribute)!r}`'} | {each.doc} |"
                for each in settings_of(group)
                if each.attribute in names
            ]
            self.assertEqual(len(rows), len(names))
            table = "\n".join(["| option | default | |", "| --- | --- | --- |", *rows, ""])
            self.assertIn(table, self.section(group.__name__), f"{GUIDE.name} should have:\n{table}")

    def test_hooks(self):
        text = self.section("Hooks")
        for base in (client.ProducerHook, client.ConsumerHook):
            self.assertIn(base.__name__, text)
            for name, method in vars(base).items():
                if isfunction(method):
                    row = next(row for row in text.splitlines() if re.search(rf"^[|].*[`.]{name}`", row))
                    self.assertIn(f"`{get_type_hints(method)['context'].__name__}`", row)
        contexts = [
            value for name, value in vars(hooks).items() if name.endswith("Context") and isinstance(value, type)
        ]
        self.assertEqual(len(contexts), 4)
        for context in contexts:
            fields = [field.name for field in msgspec.structs.fields(context)]
            (row,) = [row for row in text.splitlines() if row.startswith(f"| `{context.__name__}` |")]
            self.assertEqual(re.findall(r"[|,] `(\w+)`", row)[1 : len(fields) + 1], fields)
