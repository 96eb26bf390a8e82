"""The client is light: an import loads neither OpenSSL nor a reactor nor a library that only some programs need."""

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

HEAVY = (
    *("OpenSSL", "cryptography", "service_identity", "twisted.internet.reactor", "twisted.internet.posixbase"),
    *("twisted.internet.base", "twisted.application.service", "twisted.plugin", "twisted.python.filepath"),
    *("twisted.internet.endpoints", "twisted.web", "yaml", "prometheus_client", "opentelemetry"),
)
SELDOM = ("ctypes", "difflib", "rocketd.store.base.filesystem")
ADMINISTRATION = ("rocketd.client.admin", "rocketd.client.consumer.retries.redrive", "rocketd.acl.accounts")


class ImportTests(SynchronousTestCase):
    def check(self, statement, names):
        program = f"import sys\n{statement}\nprint([name for name in {names!r} if name in sys.modules])"
        ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual((ran.stdout, ran.stderr), ("[]\n", ""))

    def test_asyncio_face_imports_no_heavy_library(self):
        self.check("import rocketd.client.aio", HEAVY + SELDOM + ADMINISTRATION)

    def test_blocking_face_imports_no_heavy_library(self):
        self.check("import rocketd.client.sync", HEAVY + SELDOM + ADMINISTRATION)

    def test_message_imports_no_client(self):
        clients = ("rocketd.client.deferred", "rocketd.client.consumer.push_consumer")
        self.check("from rocketd.client import ClientConfig, Message", HEAVY + ADMINISTRATION + clients)

    def test_administration_imports_no_producer_and_no_consumer(self):
        clients = ("rocketd.client.producer", "rocketd.client.consumer", "rocketd.acl.accounts")
        self.check("import rocketd.client.admin", HEAVY + clients)
