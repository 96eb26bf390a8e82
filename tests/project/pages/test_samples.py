"""The sample files in etc/: each loads without a warning, names known settings only, and is installed."""

import configparser
import re
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings import properties_file
from rocketd.namesrv.settings import NamesrvSettings
from tests.support.places import ROOT

ETC = ROOT / "etc"
TWO_WITH_SLAVES = {
    "broker-a.properties": ("broker-a", 0),
    "broker-a-s.properties": ("broker-a", 1),
    "broker-b.properties": ("broker-b", 0),
    "broker-b-s.properties": ("broker-b", 1),
}
SETS = {
    "2m-2s-async": (TWO_WITH_SLAVES, "ASYNC_MASTER"),
    "2m-2s-sync": (TWO_WITH_SLAVES, "SYNC_MASTER"),
    "2m-noslave": (
        {
            "broker-a.properties": ("broker-a", 0),
            "broker-b.properties": ("broker-b", 0),
            "broker-trace.properties": ("broker-trace", 0),
        },
        "ASYNC_MASTER",
    ),
}


def samples():
    return sorted((*ETC.rglob("*.conf"), *ETC.rglob("*.properties")))


def settings_class(path):
    return NamesrvSettings if path.name == "namesrv.conf" else BrokerSettings


class SampleTests(SynchronousTestCase):
    def load(self, path):
        settings, warnings = settings_class(path).load(str(path), environ={})
        self.assertEqual(warnings, [], path)
        return settings

    def test_each_file_loads_and_names_known_settings(self):
        self.assertEqual(len(samples()), 15)
        for path in samples():
            self.load(path)
            for entry in properties_file.parse(path.read_text()):
                self.assertIn(entry.key, settings_class(path).by_name(), path)

    def test_settings_in_comments_are_known_and_accepted(self):
        for path in samples():
            text, count = re.subn(r"(?m)^#(?=[\w.]+=)", "", path.read_text())
            self.assertGreater(count, 0, path)
            with tempfile.TemporaryDirectory() as directory:
                copy = Path(directory, path.name)
                copy.write_text(text)
                self.load(copy)

    def test_cluster_files_declare_masters_and_slaves(self):
        for directory, (brokers, master) in SETS.items():
            self.assertEqual({path.name for path in (ETC / directory).iterdir()}, set(brokers))
            for name, (broker, broker_id) in brokers.items():
                settings = self.load(ETC / directory / name)
                self.assertEqual(settings.broker.broker_cluster_name, "DefaultCluster")
                self.assertEqual((settings.broker.broker_name, settings.broker.broker_id), (broker, broker_id))
                self.assertEqual(settings.store.broker_role, "SLAVE" if broker_id else master)
                self.assertEqual(settings.broker.trace_topic_enable, broker == "broker-trace")

    def test_start_line_of_file_names_the_file(self):
        for path in samples():
            (name,) = re.findall(r"^# .*twistd -n .*--config (\S+)", path.read_text(), re.MULTILINE)
            self.assertEqual(name, path.name)

    def test_all_files_are_installed(self):
        config = configparser.ConfigParser()
        config.read(ROOT / "setup.cfg")
        installed = {}
        for target, files in config["options.data_files"].items():
            for file in files.split():
                installed[file] = target
        here = (path for path in ETC.rglob("*") if path.is_file())
        self.assertEqual(
            installed,
            {str(path.relative_to(ROOT)): f"share/rocketd/{path.parent.relative_to(ROOT)}" for path in here},
        )
