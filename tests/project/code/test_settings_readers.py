"""Settings and the code that reads them: a setting works, or its declaration says that it has no effect."""

import ast
import dataclasses
import sys
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.declaration import settings_of
from rocketd.console.settings import ConsoleSettings
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.calling.client import RemotingClient
from rocketd.remoting.calling.invoke import InvokeLayer
from rocketd.remoting.settings import NettyClientConfig

PACKAGE = Path(rocketd.__file__).parent

DAEMONS = {
    BrokerSettings: ("broker", "store", "remoting", "filter", "acl", "metrics", "common"),
    NamesrvSettings: ("namesrv", "remoting", "acl", "metrics", "common"),
    ConsoleSettings: ("console", "common"),
}
"""Daemon: the packages used in it."""

HOLDERS = frozenset(
    (
        "settings",
        "config",
        "broker",
        "store",
        "server",
        "client",
        "remoting",
        "limits",
        "tls",
        "namesrv",
        "process",
        "metrics",
    )
)
"""Names of variables and attributes that hold a group of settings, without underscores in front."""

PRINTING = frozenset(("broker/admin/runtime_info.py",))
"""Modules that only show values. They do not count as readers."""

SHARED = "remoting/calling/client.py"
"""The module of the client that brokers and Python clients share."""

COUNTS_FOR = {
    "client_callback_executor_threads": ("in_executor",),
    "client_oneway_semaphore_value": ("invoke_oneway", "oneway_from_thread"),
    "client_async_semaphore_value": ("invoke_async",),
}
"""Settings that the shared client hands on when it is made: the methods for which they count, others do not use them."""

READ_BY_KEY = {"tls.config.file": "common/settings/assignments.py"}
"""Settings that are read before there is a group, by their key: where."""


@cache
def readers(package):
    """Return the modules that read each attribute of a holder, by attribute."""
    found = {}
    for path in sorted((PACKAGE / package).rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if module in PRINTING:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = node.value
                name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
                if name.lstrip("_") in HOLDERS or (name == "self" and path.name == "settings.py"):
                    found.setdefault(node.attr, set()).add(module)
    return found


def readers_of(daemon, setting):
    """Return the modules of a daemon that read a setting."""
    if setting.name in READ_BY_KEY:
        module = READ_BY_KEY[setting.name]
        return {module} if f'"{setting.name}"' in (PACKAGE / module).read_text() else set()
    own = {field.name for field in dataclasses.fields(daemon)}
    found = set().union(*(readers(package).get(setting.attribute, set()) for package in DAEMONS[daemon])) - own
    methods = COUNTS_FOR.get(setting.attribute)
    return found if methods is None or called_on_client(daemon).intersection(methods) else found - {SHARED}


def called_on_client(daemon):
    """Return the names of the methods that a daemon's own packages take of a client, or of its ``invoke``."""
    packages = [package for package in DAEMONS[daemon] if package != "remoting"]
    return {name for package in packages for name in methods_of_client(package)}


@cache
def methods_of_client(package):
    """Return the names of attributes read from ``client`` variables and attributes, and from their attributes."""
    found = set()
    for path in (PACKAGE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            holder = node
            while isinstance(holder, ast.Attribute):
                holder = holder.value
                if getattr(holder, "attr", getattr(holder, "id", "")).lstrip("_") == "client":
                    found.add(node.attr)
    return found


def handed_on_when_made():
    """Return the attributes of its settings that the shared client reads when it is made."""
    tree = ast.parse((PACKAGE / SHARED).read_text())
    (client,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RemotingClient"]
    (making,) = [node for node in client.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return {
        node.attr
        for node in ast.walk(making)
        if isinstance(node, ast.Attribute) and getattr(node.value, "attr", "") == "config"
    }


class SettingReadersTests(SynchronousTestCase):
    def test_each_setting_has_a_reader_or_is_declared_without_effect(self):
        for daemon in DAEMONS:
            for group, setting in daemon.declared():
                if setting.no_effect is None and not readers_of(daemon, setting):
                    self.fail(
                        f"{daemon.__name__}.{group}: no code in {', '.join(DAEMONS[daemon])} reads the attribute "
                        f"{setting.attribute} ({setting.name}) of a variable or attribute named one of "
                        f"{', '.join(sorted(HOLDERS))}. Read it there. If it can have no effect, declare it with "
                        'no_effect="why." instead of its doc. If only this daemon does not read it, name it in '
                        f"{daemon.__name__}: group(..., no_effect={{{setting.attribute!r}: 'why.'}})"
                    )

    def test_settings_with_a_reader_are_not_declared_without_effect(self):
        for daemon in DAEMONS:
            declared = [(name, setting) for name, group, _ in daemon.groups() for setting in settings_of(group)]
            # A search by name cannot tell the attributes of two groups apart.
            works = {setting.attribute for _, setting in declared if setting.no_effect is None}
            for name, setting in declared:
                if setting.no_effect is not None and setting.attribute not in works:
                    self.assertEqual(readers_of(daemon, setting), set(), f"{daemon.__name__}.{name}.{setting.name}")

    def test_reasons_are_sentences(self):
        for daemon in DAEMONS:
            for _, setting in daemon.declared():
                if setting.no_effect is not None:
                    self.assertTrue(setting.no_effect.endswith("."), setting.name)
                    self.assertEqual(setting.doc, f"No effect: {setting.no_effect}")

    def test_reasons_of_a_daemon_name_attributes_of_the_group(self):
        for daemon in DAEMONS:
            for field in dataclasses.fields(daemon):
                if "group" in field.metadata:
                    known = {one.name for one in dataclasses.fields(field.metadata["group"])}
                    self.assertLessEqual(set(field.metadata["no_effect"]), known)

    def test_settings_passed_on_by_shared_client_count_for_known_methods(self):
        self.assertEqual(
            handed_on_when_made(),
            set(COUNTS_FOR),
            f"{SHARED} hands on other settings than COUNTS_FOR tells: name there the methods for which each counts, so that "
            "it is known which daemon it has an effect in",
        )
        for methods in COUNTS_FOR.values():
            for method in methods:
                self.assertTrue(hasattr(RemotingClient, method) or hasattr(InvokeLayer, method), method)

    def test_reader_in_the_shared_client_counts_if_the_daemon_gets_there(self):
        own = BrokerSettings.by_name()
        self.assertEqual(readers_of(BrokerSettings, own["clientAsyncSemaphoreValue"]), set())
        self.assertIn(SHARED, readers_of(BrokerSettings, own["clientCloseSocketIfTimeout"]))
        self.assertIn("invoke_sync", called_on_client(BrokerSettings))
        self.patch(sys.modules[__name__], "called_on_client", lambda daemon: {"invoke_async"})
        self.assertEqual(readers_of(BrokerSettings, own["clientAsyncSemaphoreValue"]), {SHARED})

    def test_search_finds_readers_of_values_only(self):
        self.assertIn("remoting/calling/client.py", readers("remoting")["client_async_semaphore_value"])
        self.assertNotIn("transient_store_pool_enable", readers("store"))
        self.assertIn(NettyClientConfig, {group for _, group, _ in BrokerSettings.groups()})
