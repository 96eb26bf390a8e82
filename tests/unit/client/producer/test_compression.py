"""Producers that compress bodies by an algorithm of the application's choice."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd import client
from rocketd.client import Message, aio, sync
from rocketd.client.errors import IllegalOptionError
from rocketd.client.settings import packages
from rocketd.testing import Cluster
from tests.support.lacking import need_package


class CompressionTests(SynchronousTestCase):
    def test_algorithm_of_producer_is_in_stored_message_and_consumers_read_it(self):
        need_package("zstandard")
        got = []
        with Cluster(topics=["T"]) as cluster:
            options = cluster.client_options()
            with (
                sync.Producer("PG", compression="zstd", **options) as producer,
                sync.Consumer("CG", topics="T", handler=got.append, **options),
            ):
                for body in (b"x" * 4096, b"x" * 4095):
                    producer.send(Message("T", body))
                cluster.settle()
            flags = sorted(message.sys_flag for message in cluster.messages("T"))
        self.assertEqual(flags, [0, 0x201])
        self.assertEqual(sorted(len(message.body) for message in got), [4095, 4096])

    def test_unknown_algorithm_is_refused(self):
        for face in (client, aio, sync):
            error = self.assertRaises(IllegalOptionError, face.Producer, "PG", compression="gzip")
            self.assertEqual(str(error), "compression='gzip': accepted is 'zlib', 'lz4' or 'zstd'")

    def test_missing_package_is_named_with_the_command_that_installs_it(self):
        self.patch(packages, "find_spec", lambda name: None)
        error = self.assertRaises(IllegalOptionError, sync.Producer, "PG", compression="zstd")
        self.assertEqual(
            str(error),
            "compression='zstd' needs the package zstandard, which is not installed: pip install 'rocketd[compression]'",
        )
        sync.Producer("PG")

    def test_name_of_other_clients_is_answered_with_ours(self):
        error = self.assertRaises(TypeError, sync.Producer, "PG", compression_type="lz4")
        self.assertIn("use compression=", str(error))
