"""Settings and the code that reads them: a setting works, or its declaration says that it has no effect."""

import ast
import dataclasses
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd.broker.settings import BrokerSettings
from rocketd.common.config import settings_of
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.settings import NettyClientConfig

PACKAGE = Path(rocketd.__file__).parent

DAEMONS = {
    BrokerSettings: ("broker", "store", "remoting", "filter", "acl", "common"),
    NamesrvSettings: ("namesrv", "remoting", "acl", "common"),
}
"""Packages whose code runs in a daemon."""

HOLDERS = frozenset(
    ("settings", "config", "broker", "store", "server", "client", "remoting", "limits", "tls", "namesrv")
)
"""Names of variables and attributes that hold a group of settings, without underscores in front."""

PRINTING = frozenset(("broker/runtime_info.py",))
"""Modules that only show values: they are no readers."""

READ_BY_KEY = {"tls.config.file": "common/assignments.py"}
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
    return set().union(*(readers(package).get(setting.attribute, set()) for package in DAEMONS[daemon])) - own


class SettingReadersTests(SynchronousTestCase):
    def test_each_setting_has_a_reader_or_says_that_it_has_no_effect(self):
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

    def test_no_setting_with_a_reader_says_that_it_has_no_effect(self):
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

    def test_the_search_finds_readers_of_values_only(self):
        self.assertIn("remoting/client.py", readers("remoting")["client_async_semaphore_value"])
        self.assertNotIn("transient_store_pool_enable", readers("store"))
        self.assertIn(NettyClientConfig, {group for _, group, _ in BrokerSettings.groups()})
