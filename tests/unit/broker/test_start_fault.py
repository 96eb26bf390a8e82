"""Changes by request that the next start of a broker would fail with: refused, as long as they would."""

import os
from pathlib import Path
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base import extensions
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.start_fault import start_fault
from rocketd.common.settings.daemon_settings import UpdateResult
from rocketd.store.base.filesystem import RealFileSystem

LOG, QUEUE, EXTENSION = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt"
FILES = {
    LOG: "commitlog/00000000000000000000",
    QUEUE: "consumequeue/T/0/00000000000000000000",
    EXTENSION: "consumequeue_ext/T/0/00000000000000000000",
}
SIZES = {LOG: 8192, QUEUE: 6000, EXTENSION: 2048}


class StartFaultTests(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())

    def make(self, **options):
        sizes = {key: str(size) for key, size in SIZES.items()}
        given = {"storePathRootDir": self.root, **sizes, **options}
        path = self.write("broker.conf", "".join(f"{key}={value}\n" for key, value in given.items()))
        self.settings, _ = BrokerSettings.load(path)
        self.settings.start_fault = lambda tried: start_fault(self.settings, tried, RealFileSystem())

    def write(self, name, text=""):
        path = Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def make_files(self):
        for key, name in FILES.items():
            os.truncate(self.write(name), SIZES[key])

    def assert_refused(self, text, *parts):
        results = self.settings.update(text)
        for result in results:
            self.assertIs(result.outcome, UpdateResult.BAD_VALUE, result)
            for part in ("the next start would fail: ", *parts):
                self.assertIn(part, result.explanation)
        self.assertEqual(self.settings.pending, {})

    def assert_taken(self, text):
        self.assertEqual({result.outcome for result in self.settings.update(text)}, {UpdateResult.RESTART})

    def test_file_size_of_a_store_with_files_is_refused(self):
        self.make()
        self.make_files()
        for key, name in FILES.items():
            path, size = os.path.join(self.root, name), SIZES[key]
            self.assert_refused(f"{key}={2 * size}", f"{path} has {size} bytes, but the settings say {2 * size}")

    def test_file_size_of_an_empty_store_or_rounded_to_the_same_is_taken(self):
        self.make()
        self.assert_taken("".join(f"{key}={2 * size}\n" for key, size in SIZES.items()))
        self.make_files()
        # A file that is being made is empty at first; others are not the log's.
        self.make()
        os.truncate(os.path.join(self.root, FILES[LOG]), 0)
        self.write("commitlog/notes.txt", "x")
        self.assert_taken(f"{LOG}=16384\n{QUEUE}={SIZES[QUEUE] - 1}")

    def test_change_is_accepted_despite_unrelated_fault(self):
        self.make(**{"tls.test.mode.enable": "false", "tls.server.mode": "enforcing"})
        self.make_files()
        os.truncate(os.path.join(self.root, FILES[LOG]), 5)
        self.assert_taken("serverSocketBacklog=7")

    def test_replication_by_tls_without_certificates_is_refused(self):
        self.make()
        self.assert_refused("haTlsMode=enforcing", "haTlsMode = enforcing: set tls.test.mode.enable=false")
        self.make(
            **{
                "tls.test.mode.enable": "false",
                "tls.server.mode": "disabled",
                "haTlsTrustCertPath": "/nowhere/trust.pem",
            }
        )
        self.assert_refused("haTlsMode=permissive", "tls.server.keyPath is not set")

    def test_tls_of_a_slave_without_certificates_is_refused(self):
        self.make(brokerRole="SLAVE", brokerId="1")
        self.assert_refused("haTlsEnable=true", "haTlsEnable = true: set tls.test.mode.enable=false")

    def test_tls_without_certificates_is_refused(self):
        self.make(**{"tls.test.mode.enable": "false"})
        self.assert_refused("tls.server.mode=enforcing", "tls.server.keyPath is not set")
        self.make(**{"tls.test.mode.enable": "false", "tls.client.keyPath": "/nowhere/key.pem"})
        self.assert_refused("useTLS=true", "tls.client.certPath is not set")

    def test_change_to_unreadable_accounts_is_refused(self):
        self.make()
        self.settings.broker.rocketmq_home = None
        self.assert_refused("aclEnable=true", "aclEnable = true: conf/plain_acl.yml is relative to rocketmqHome")
        self.patch(extensions, "_installed", lambda _: [SimpleNamespace(replaces_accounts=True)])
        self.assert_taken("aclEnable=true")
