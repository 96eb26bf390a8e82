"""A throw-away authority for TLS, and a certificate of it for the servers of a test. Nothing else trusts it."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from rocketd.remoting.tls.authority import Authority, write_private

VALID_DAYS = 30


class TlsFiles(NamedTuple):
    """Paths of PEM files: the authority, and a certificate of it for servers and clients, with its private key."""

    ca: str
    certificate: str
    key: str

    def server_settings(self, mode: str) -> Mapping[str, object]:
        """Return the settings of a server for its clients."""
        return {
            "tls.server.mode": mode,
            "tls.test.mode.enable": False,
            "tls.server.keyPath": self.key,
            "tls.server.certPath": self.certificate,
            "tls.server.trustCertPath": self.ca,
        }

    def client_settings(self) -> Mapping[str, object]:
        """Return the settings of a broker for its requests to other servers."""
        return {
            "tls.enable": True,
            "tls.client.authServer": True,
            "tls.client.keyPath": self.key,
            "tls.client.certPath": self.certificate,
            "tls.client.trustCertPath": self.ca,
        }


def write_certificates(directory: str) -> TlsFiles:
    """Make an authority and a certificate for localhost, and write them to a directory."""
    now = datetime.now(UTC)
    authority = Authority.make("rocketd.testing", now, VALID_DAYS)
    issued = authority.issue(["localhost", "127.0.0.1", "::1"], now, VALID_DAYS)
    files = TlsFiles(*(os.path.join(directory, file) for file in ("ca.pem", "certificate.pem", "key.pem")))
    contents = (authority.certificate_pem, issued.certificate_pem, issued.key_pem)
    for path, content in zip(files, contents, strict=True):
        write_private(path, content, replace=True)
    return files
