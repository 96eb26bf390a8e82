"""Public class names: each stands once in the project, so that a search finds one class."""

import ast
from collections import defaultdict

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

PACKAGE = ROOT / "rocketd"

FACES = frozenset(
    (
        *("client/aio.py", "client/deferred.py", "client/openmessaging.py", "client/sync.py"),
        *("client/faces/aio_admin.py", "client/faces/sync_admin.py", "client/faces/twisted_admin.py"),
    )
)
"""Modules with the same classes for Twisted, asyncio, threads and OpenMessaging."""

OTHER_CLIENTS = "compat/"
"""Modules with the names of other clients."""

APACHES = frozenset(("SendMessageContext", "ConsumeMessageContext"))
"""Apache has these names in the broker and in the client."""

TWISTEDS = frozenset(("Options",))
"""The name that twistd looks for in a command's module."""


class PublicNamesTests(SynchronousTestCase):
    def test_public_class_name_stands_once(self):
        places = defaultdict(list)
        for path in sorted(PACKAGE.rglob("*.py")):
            module = path.relative_to(PACKAGE).as_posix()
            if module.startswith(OTHER_CLIENTS):
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and module not in FACES:
                    places[node.name].append(module)
        twice = {name: modules for name, modules in places.items() if len(modules) > 1}
        self.assertEqual({name: twice[name] for name in twice.keys() - APACHES - TWISTEDS}, {})
