"""``rocketd tls``: files of an authority and of certificates, which TLS itself verifies."""

import json
import os
import socket
import ssl
import threading
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from io import BytesIO, StringIO, TextIOWrapper

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.tls.authority import Authority
from rocketd.tools.cli import main

LIMIT = 30


def run_tls(*arguments):
    """Run a command in this process; return its status, its output and its complaints."""
    out, err = TextIOWrapper(BytesIO(), "utf-8"), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["tls", *arguments])
    out.flush()
    return status, out.buffer.getvalue().decode(), err.getvalue()


class CertificateTests(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())

    def path(self, name):
        return os.path.join(self.directory, name)

    def made(self, *arguments):
        status, out, err = run_tls(*arguments, "--dir", self.directory)
        self.assertEqual(status, 0, err)
        return out

    def refused(self, *arguments):
        status, _, err = run_tls(*arguments, "--dir", self.directory)
        self.assertNotEqual(status, 0)
        return err

    def shown(self, place, status=0):
        found, out, err = run_tls("show", place, "--json")
        self.assertEqual(found, status, err)
        return json.loads(out)

    def serve(self, name):
        """Serve one connection with a certificate; return the port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}-key.pem"))
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)

        def accept():
            connection, _ = listening.accept()
            connection.settimeout(LIMIT)
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        self.addCleanup(thread.join, LIMIT)
        return listening.getsockname()[1]

    def verify(self, port, host):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", port), LIMIT) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return connection.version()

    def test_certificate_is_verified_for_each_of_its_hosts_and_for_no_other(self):
        self.made("authority")
        self.made("certificate", "broker.example", "127.0.0.1")
        for host in ("broker.example", "127.0.0.1"):
            self.assertIn("TLS", self.verify(self.serve("broker.example"), host))
        error = self.assertRaises(
            ssl.SSLCertVerificationError, self.verify, self.serve("broker.example"), "other.example"
        )
        self.assertIn("not valid for 'other.example'", str(error))

    def test_settings_for_a_server_are_printed(self):
        self.made("authority")
        out = self.made("certificate", "10.0.0.5", "--name", "broker-a")
        self.assertEqual(
            out.splitlines(),
            [
                "tls.test.mode.enable=false",
                "tls.server.mode=enforcing",
                f"tls.server.certPath={self.path('broker-a.pem')}",
                f"tls.server.keyPath={self.path('broker-a-key.pem')}",
            ],
        )

    def test_files_are_for_their_owner_alone(self):
        self.made("authority")
        self.made("certificate", "host")
        self.assertEqual({os.stat(self.path(name)).st_mode & 0o777 for name in os.listdir(self.directory)}, {0o600})

    def test_existing_files_are_kept(self):
        self.made("authority")
        with open(self.path("ca.pem"), "rb") as file:
            before = file.read()
        self.assertIn("ca.pem exists; it is not replaced", self.refused("authority"))
        with open(self.path("ca.pem"), "rb") as file:
            self.assertEqual(file.read(), before)
        self.made("certificate", "host")
        self.assertIn("host.pem exists", self.refused("certificate", "host"))

    def test_certificate_needs_its_authority(self):
        self.assertIn("rocketd tls authority makes it", self.refused("certificate", "host"))
        self.made("authority")
        other = os.path.abspath(self.mktemp())
        self.assertEqual(run_tls("authority", "--dir", other)[0], 0)
        os.replace(os.path.join(other, "ca-key.pem"), self.path("ca-key.pem"))
        self.assertIn("the key belongs to another certificate", self.refused("certificate", "host"))

    def test_name_is_not_a_path(self):
        self.made("authority")
        self.assertIn("without a path", self.refused("certificate", "host", "--name", "../host"))

    def test_certificate_of_a_file_and_of_a_server_are_shown(self):
        self.made("authority", "--name", "our cluster")
        self.made("certificate", "host.example", "::1", "--days", "10")
        of_file = self.shown(self.path("host.example.pem"))
        self.assertEqual((of_file["subject"], of_file["issuer"]), ("CN=host.example", "CN=our cluster"))
        self.assertEqual((of_file["hosts"], of_file["days left"]), ("host.example, ::1", "9"))
        self.assertEqual(self.shown(f"127.0.0.1:{self.serve('host.example')}"), of_file)

    def test_certificate_that_outlives_its_authority_is_told(self):
        self.made("authority", "--days", "5")
        status, _, err = run_tls("certificate", "host", "--dir", self.directory)
        self.assertEqual(status, 0)
        self.assertIn("the authority ends before the certificate", err)

    def test_certificate_that_is_over_ends_with_status_1(self):
        os.mkdir(self.directory)
        before = datetime(2020, 1, 1, tzinfo=UTC)
        with open(self.path("old.pem"), "wb") as file:
            file.write(Authority.make("old", before, 365).issue(["host"], before, 30).certificate_pem)
        self.assertEqual(self.shown(self.path("old.pem"), status=1)["valid until"], "2020-01-31T00:00:00+00:00")

    def test_other_files_and_servers_without_tls_are_refused(self):
        os.mkdir(self.directory)
        with open(self.path("text"), "w") as file:
            file.write("no certificate")
        for place, text in (
            (self.path("text"), "does not contain a PEM certificate"),
            (self.path("none"), "No such file"),
        ):
            status, _, err = run_tls("show", place)
            self.assertEqual((status, text in err), (1, True), err)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        status, _, err = run_tls("show", f"127.0.0.1:{port}")
        self.assertEqual((status, "refused" in err), (1, True), err)
