"""Types of options and hooks are exported by rocketd.client, and the guide lists its names."""

import dataclasses
import re
from inspect import isclass, isfunction
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from rocketd import client
from rocketd.client import aio, hooks, sync
from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.faces.lifecycle import Face
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.settings.config import ClientConfig
from rocketd.common.settings.declaration import settings_of
from rocketd.remoting.calling import channel_table
from rocketd.remoting.calling import client as remoting_client
from rocketd.remoting.tls import contexts as tls
from tests.support.client_guide import guide_text


def classes_in(annotation):
    """All classes that stand in an annotation."""
    inner = get_args(annotation)
    if not inner:
        return {annotation} if hasattr(annotation, "__name__") else set()
    return {found for each in inner for found in classes_in(each)}


def is_client(value):
    return isclass(value) and issubclass(value, Face)


class ExportTests(SynchronousTestCase):
    def test_exported_names_exist_once(self):
        for name in client.__all__:
            self.assertTrue(hasattr(client, name), name)
        self.assertEqual(len(set(client.__all__)), len(client.__all__))

    def test_types_of_options_are_exported(self):
        elsewhere = {
            "ClientEnvironment",
            "AllocationStrategy",
        }  # rocketd.testing makes the one, the guide says where the other is
        found = set()
        for options in (ClientConfig, ProducerOptions, ConsumerOptions):
            for annotation in get_type_hints(options).values():
                found |= classes_in(annotation)
        ours = {kind for kind in found if getattr(kind, "__module__", "").startswith("rocketd.")}
        names = {kind.__name__ for kind in ours} - elsewhere
        self.assertGreaterEqual(names, {"FlowLimits", "TlsConfig", "NettyClientConfig", "ProducerHook", "RequestHook"})
        self.assertEqual(names - set(client.__all__), set())

    def test_types_of_hooks_are_exported(self):
        public = {name for name, value in vars(hooks).items() if re.fullmatch(r"\w+(Context|er)Hook|\w+Context", name)}
        self.assertGreater(len(public), 3)
        for name in (*public, "ProducerHook", "ConsumerHook", "MessageType", "ConsumeReturnType"):
            self.assertIn(name, client.__all__)


class NameTests(SynchronousTestCase):
    """The guide's section of names, against the public attributes of clients and the exports."""

    def setUp(self):
        self.section = guide_text().split("\n## Names\n")[1].split("\n## ")[0].split("\n# ")[0]

    def test_public_names_of_clients_are_the_documented_ones(self):
        rows = dict(re.findall(r"^[|] `(\w+)` [|] (.*) [|]$", self.section, re.MULTILINE))
        self.assertEqual(set(rows), {name for name in client.__all__ if is_client(getattr(client, name))})
        for face in (client, aio, sync):
            for name, row in rows.items():
                cls = getattr(face, name)
                made = cls() if name == "Admin" else cls("group")
                options = {"group", *(field.name for field in dataclasses.fields(cls))}
                public = {each for each in dir(made) if not each.startswith("_")} - options
                self.assertEqual(
                    public, {*re.findall(r"`(\w+)`", row), "open", "close", "start", "stop"}, f"{face.__name__}.{name}"
                )

    def test_exports_are_the_documented_ones(self):
        listed = re.findall(r"`(\w+)`", self.section.split("results need:")[1])
        self.assertEqual(listed, [name for name in client.__all__ if not is_client(getattr(client, name))])


class GuideTests(SynchronousTestCase):
    def setUp(self):
        self.text = guide_text()

    def section(self, title):
        return re.search(rf"^#+ {title}\n(.*?)(?=^#+ )", self.text, re.MULTILINE | re.DOTALL)[1]

    def test_configuration_tables_list_fields_read_by_clients(self):
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
            self.assertIn(table, self.section(group.__name__), f"the guide should have:\n{table}")

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
