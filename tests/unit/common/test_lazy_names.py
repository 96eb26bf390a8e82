"""Names imported at their first use: type checkers and Python see the same ones, and a fork waits for imports."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rocketd.client
from rocketd.client import aio
from rocketd.common.event_loop import timers
from tests.support.places import ROOT

FORK_DURING_IMPORT = """
import os, signal, sys, threading
from types import ModuleType, SimpleNamespace
from rocketd.common.lazy_names import lazy_names

sys.path.insert(0, sys.argv[1])
sys.modules["forking"] = forking = SimpleNamespace(imports=threading.Event(), begins=threading.Event())
sys.modules["lazy"] = lazy = ModuleType("lazy")
lazy.__getattr__, _ = lazy_names("lazy", {"importing": ("NAME",)})
os.register_at_fork(before=forking.begins.set)  # called first
first = threading.Thread(target=lambda: lazy.NAME)
first.start()
forking.imports.wait()
sys.setswitchinterval(60)  # no other thread runs before the fork, unless the fork waits for it
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if lazy.NAME == "value" else 1)
first.join()
print(os.waitpid(child, 0)[1])
"""

IMPORTING = """
import forking
forking.imports.set()
forking.begins.wait()
NAME = "value"
"""


def is_checking(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def lazy_modules():
    """The modules with lazy names: for each its imports for type checkers, and those at first use."""
    for path in sorted((ROOT / "rocketd").rglob("*.py")):
        text = path.read_text()
        for node in ast.parse(text).body if "lazy_names(" in text else ():
            calls = [
                each for part in getattr(node, "orelse", ()) for each in ast.walk(part) if isinstance(each, ast.Call)
            ]
            if is_checking(node) and any(getattr(call.func, "id", "") == "lazy_names" for call in calls):
                checked = {(each.module, alias.name) for each in node.body for alias in each.names}
                places = ast.literal_eval(next(call for call in calls if call.args).args[1])
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                yield name, checked, {(place, name) for place, names in places.items() for name in names}


class LazyNamesTests(SynchronousTestCase):
    def test_type_checkers_and_python_import_the_same(self):
        found = {name: (checked, lazy) for name, checked, lazy in lazy_modules()}
        self.assertGreater(len(found), 4)
        for name, (checked, lazy) in found.items():
            self.assertEqual(checked, lazy, name)

    def test_lazy_name_is_the_object_of_its_module(self):
        for module, _, lazy in lazy_modules():
            for place, name in lazy:
                self.assertIs(getattr(import_module(module), name), getattr(import_module(place), name))

    def test_unknown_name_is_an_attribute_error(self):
        error = self.assertRaises(AttributeError, lambda: rocketd.client.Produser)
        self.assertEqual(str(error), "module 'rocketd.client' has no attribute 'Produser'")
        self.assertRaises(ImportError, exec, "from rocketd.client import Produser")

    def test_names_are_listed_and_imported_by_a_star(self):
        self.assertEqual(set(rocketd.client.__all__) - set(dir(rocketd.client)), set())
        self.assertIn("Admin", dir(aio))
        names = {}
        exec("from rocketd.client.aio import *", names)  # what a program may do
        self.assertEqual(set(aio.__all__) - set(names), set())

    def test_submodules_are_attributes_without_an_import_of_them(self):
        (names,) = (names for module, _, names in lazy_modules() if module == "rocketd.client")
        submodules = [name for place, name in names if place == "rocketd.client"]
        self.assertIn("errors", submodules)
        for name in submodules:
            vars(rocketd.client).pop(name, None)  # an import by another test has set it
            self.assertIs(getattr(rocketd.client, name), import_module(f"rocketd.client.{name}"))

    def test_fork_waits_for_an_import_of_another_thread(self):
        directory = Path(self.mktemp())
        directory.mkdir()
        (directory / "importing.py").write_text(IMPORTING)
        command = [sys.executable, "-c", FORK_DURING_IMPORT, str(directory.absolute())]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual((ran.stdout, ran.stderr), ("0\n", ""))

    def test_lazy_class_can_be_pickled(self):
        self.assertIs(pickle.loads(pickle.dumps(aio.Admin)), aio.Admin)
        self.assertIs(pickle.loads(pickle.dumps(timers.ClockedLoop)), timers.ClockedLoop)
