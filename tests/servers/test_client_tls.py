"""TLS of the Python client: which servers it trusts, against real ones."""

import re
import time

import pytest
import trustme

from rocketd.client import ClientConfig, Message
from rocketd.client.errors import IllegalOptionError
from rocketd.client.sync import Producer
from rocketd.remoting.settings import TlsConfig
from tests.support.server_processes import ServerProcesses

SECONDS = 60.0
TOPIC = "TBW102"


def start(directory, authority=None):
    """Start both servers, with a certificate of an authority or with their own."""
    settings = {"tls.server.mode": "permissive"}
    if authority is not None:
        authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
            directory / "server.pem"
        )
        settings |= {
            "tls.test.mode.enable": "false",
            "tls.server.certPath": str(directory / "server.pem"),
            "tls.server.keyPath": str(directory / "server.pem"),
        }
    servers = ServerProcesses(directory, **settings)
    servers._spawn("namesrv", {"listenPort": servers.namesrv_address.partition(":")[2], **settings})
    servers.start_broker()
    return servers


def send(address, **options):
    with Producer("tls", ClientConfig(namesrv=address, **options), send_timeout=SECONDS, retries=0) as producer:
        return producer.send(Message(TOPIC, b"x"))


def check_refused(address, **options):
    began = time.monotonic()
    with pytest.raises(Exception, match="certificate"):
        send(address, timeout=SECONDS, **options)
    assert time.monotonic() - began < SECONDS / 2


def test_servers_of_trusted_authority_are_accepted_others_refused(tmp_path):
    authority, other = trustme.CA(), trustme.CA()
    for name, each in (("ca", authority), ("other", other)):
        each.cert_pem.write_to_path(tmp_path / f"{name}.pem")
    servers = start(tmp_path, authority)
    address = servers.namesrv_address
    try:
        assert send(address, tls=True, ca=tmp_path / "ca.pem").msg_id
        assert send(address, tls="unverified").msg_id
        check_refused(address, tls=True, ca=str(tmp_path / "other.pem"))
        check_refused(address, tls=True)
    finally:
        servers.kill_all()


def test_certificates_of_test_mode_are_refused_by_default(tmp_path):
    servers = start(tmp_path)
    try:
        check_refused(servers.namesrv_address, tls=True)
        assert send(servers.namesrv_address, tls="unverified").msg_id
    finally:
        servers.kill_all()


def test_unusable_file_of_authorities_is_an_error_of_the_option(tmp_path):
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for ca, reason in ((tmp_path / "none.pem", "No such file"), (text, "does not contain a PEM certificate")):
        with pytest.raises(IllegalOptionError, match=rf"^tls: ca: .*{re.escape(ca.name)}.*") as caught:
            Producer("PG", ClientConfig(namesrv="127.0.0.1:1", tls=True, ca=ca)).open()
        assert reason in str(caught.value)
    wrong = TlsConfig(test_mode_enable=False, client_auth_server=True, client_trust_cert_path=str(text))
    with pytest.raises(IllegalOptionError, match=r"^tls: tls\.client\.trustCertPath: "):
        Producer("PG", ClientConfig(namesrv="127.0.0.1:1", tls=wrong)).open()
