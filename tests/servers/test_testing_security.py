"""rocketd.testing with TLS and with accounts."""

import os
import socket
import ssl
import stat
import subprocess
import sys

import pytest

from rocketd.client import BrokerAccount, ClientConfig, Credentials, TlsConfig
from rocketd.client.errors import BrokerError, NoNameServerError, RocketMQError, UsageError
from rocketd.client.sync import Admin, Consumer, Message, Producer
from rocketd.testing import AccountConfig, Cluster
from rocketd.testing.sockets import is_real
from tests.support.server_processes import SOURCES

SHOP = AccountConfig("shopkeeper", "shopSecret", topic_perms=["Orders=PUB"])
STORE = AccountConfig("warehouse", "storeSecret", topic_perms=["Orders=SUB"], group_perms=["store=SUB"])
ADMIN = AccountConfig("administrator", "adminSecret", admin=True)
ACCOUNTS = [SHOP, STORE, ADMIN]


def credentials(account):
    return Credentials(account.access_key, account.secret_key)


def bodies(messages):
    return sorted(message.body for message in messages)


def refused(options, text, topic="T", timeout=3):
    """Return the error of a send."""
    with Producer("P", **options) as producer, pytest.raises(RocketMQError, match=text) as raised:
        producer.send(Message(topic, b"refused"), timeout=timeout)
    return raised.value


# ------------------------------------------------------------ TLS


def test_clients_trust_servers_with_tls():
    seen = []
    with Cluster(topics=["T"], tls=True) as cluster, Producer("P", **cluster.client_options()) as producer:
        with Consumer(
            "C",
            topics="T",
            begin="earliest",
            handler=lambda message: seen.append(message.body),
            **cluster.client_options(),
        ):
            for number in range(20):
                producer.send(Message("T", b"%d" % number))
            producer.send(Message("T", b"later", delay_level=14))
            producer.send(Message("T", bytes(500_000)))
            cluster.advance(minutes=11)
        assert len(seen) == 22
        assert b"later" in seen
        server = cluster.broker.server
        assert server.connections
        assert all(hasattr(connection.transport, "getPeerCertificate") for connection in server.connections)
        assert not any(map(is_real, server.connections))


def test_plain_client_is_refused_by_enforcing_servers_and_served_by_permissive_ones():
    with Cluster(topics=["T"], tls=True) as cluster:
        error = refused(cluster.client_options(tls=False, timeout=0.5), "no name server", timeout=0.5)
        assert isinstance(error, NoNameServerError)
        assert cluster.messages("T") == []
    with Cluster(topics=["T"], tls="permissive") as cluster:
        for tls in (False, True):
            options = cluster.client_options() if tls else cluster.client_options(tls=False)
            with Producer("P", **options) as producer:
                producer.send(Message("T", b"%d" % tls))
        assert bodies(cluster.messages("T")) == [b"0", b"1"]


def test_client_with_other_authorities_is_refused():
    with Cluster(tls=True) as cluster, Cluster(tls=True) as other:
        for options in ({"tls": True}, {"tls": True, "ca": other.tls.ca}):
            refused(cluster.client_options(**options, timeout=5), "certificate", timeout=5)
        with Producer("P", **cluster.client_options(tls="unverified")) as producer:
            producer.send(Message("T", b"trusting"))
        assert bodies(cluster.messages("T")) == [b"trusting"]


def test_tls_survives_kills_and_slaves():
    with (
        Cluster(topics=["T"], brokers=2, slaves=1, tls=True, broker={"haTlsMode": "enforcing"}) as cluster,
        Producer("P", **cluster.client_options()) as producer,
    ):
        for number in range(8):
            producer.send(Message("T", b"%d" % number))
        cluster.settle()
        cluster.kill()
        cluster.restart()
        cluster.advance(minutes=1)
        for number in range(8):
            producer.send(Message("T", b"%d" % number))
        cluster.settle()
        assert len(cluster.messages("T")) == 16
        assert sum(len(cluster.brokers[f"{name}:1"].messages("T")) for name in ("broker-a", "broker-b")) == 16
        (slave,) = cluster.broker.replication.master.slaves
        assert slave.has_certificate


def test_client_certificates_may_be_required():
    settings = {"tls.server.need.client.auth": "require", "tls.server.authClient": True}
    with Cluster(topics=["T"], tls=True, broker=settings) as cluster:
        refused(cluster.client_options(timeout=5), "127.0.0.1:10911", timeout=5)
        files = cluster.tls
        tls = TlsConfig(
            test_mode_enable=False,
            client_auth_server=True,
            client_trust_cert_path=files.ca,
            client_cert_path=files.certificate,
            client_key_path=files.key,
        )
        with Producer("P", **cluster.client_options(tls=tls)) as producer:
            producer.send(Message("T", b"known"))
        assert bodies(cluster.messages("T")) == [b"known"]


def test_sockets_have_tls_too():
    with Cluster(topics=["T"], brokers=2, tls=True) as cluster:
        address = cluster.listen()
        host, port = address.split(":")
        context = ssl.create_default_context(cafile=cluster.tls.ca)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        with (
            socket.create_connection((host, int(port)), 30) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            assert dict(secure.getpeercert()["subject"][0]) == {"commonName": "localhost"}
        with Producer("P", ClientConfig(namesrv=address, tls=True, ca=cluster.tls.ca)) as producer:
            for number in range(8):
                producer.send(Message("T", b"%d" % number))
            producer.send(Message("T", bytes(500_000)))
            cluster.advance(minutes=5)
            cluster.kill()
            cluster.restart()
            producer.send(Message("T", b"after"))
        assert len(cluster.messages("T")) == 10
        refused({"cluster": ClientConfig(namesrv=address, timeout=0.5)}, "no name server", timeout=0.5)


LEAVES_NOTHING = """
import sys, tempfile, threading
from pathlib import Path
tempfile.tempdir = sys.argv[1]
from rocketd.client.sync import Message, Producer
from rocketd.testing import AccountConfig, Cluster
from rocketd.testing.sockets import is_real

for _ in range(2):
    with Cluster(topics=["T"], tls=True, accounts=[AccountConfig("shopkeeper", "shopSecret", admin=True)]) as cluster:
        (directory,) = Path(sys.argv[1]).iterdir()
        key = Path(cluster.tls.key)
        assert key.parent == directory, key
        assert key.stat().st_mode & 0o077 == directory.stat().st_mode & 0o077 == 0
        cluster.listen()
        cluster.advance(minutes=1)
    assert cluster.tls is None
    assert not list(Path(sys.argv[1]).iterdir())
assert "twisted.internet.reactor" not in sys.modules
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
if len(sys.argv) > 2:
    Cluster(tls=True).start()  # never stopped
"""


@pytest.mark.parametrize("more", [(), ("unstopped",)])
def test_files_are_private_and_removed(tmp_path, more):
    ran = subprocess.run(
        [sys.executable, "-c", LEAVES_NOTHING, str(tmp_path), *more],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------ accounts


@pytest.fixture(scope="module")
def guarded():
    with Cluster(topics=["Orders", "News"], brokers=2, slaves=1, accounts=ACCOUNTS) as cluster:
        yield cluster


def test_accounts_have_their_rights(guarded):
    options = guarded.client_options
    seen = []
    with (
        Producer("shop", **options(credentials=credentials(SHOP))) as producer,
        Consumer(
            "store",
            topics="Orders",
            begin="earliest",
            handler=lambda message: seen.append(message.body),
            **options(credentials=credentials(STORE)),
        ),
    ):
        for _ in range(4):
            producer.send(Message("Orders", b"pears"))
        with pytest.raises(BrokerError, match="topic:News"):
            producer.send(Message("News", b"pears"))
        with pytest.raises(BrokerError, match="topic:News"):
            producer.send_batch([Message("News", b"pears"), Message("News", b"apples")])
        guarded.settle()
    assert seen == [b"pears"] * 4
    assert guarded.messages("News") == []


def test_account_makes_itself_admin_only_without_strictness():
    admin = BrokerAccount(SHOP.access_key, admin=True)
    for strict in (None, False):
        settings = {} if strict is None else {"aclStrict": strict}
        with (
            Cluster(accounts=ACCOUNTS, broker=settings) as cluster,
            Admin(**cluster.client_options(credentials=credentials(SHOP))) as client,
        ):
            if strict is None:
                with pytest.raises(BrokerError, match="AclException"):
                    client.set_account(admin)
            else:
                client.set_account(admin)


def test_client_without_account_gets_error_of_real_broker(guarded):
    error = refused(guarded.client_options(), "AclException: No accessKey is configured", "Orders")
    assert isinstance(error, BrokerError)
    wrong = Credentials(SHOP.access_key, "anotherSecret")
    refused(guarded.client_options(credentials=wrong), "Check signature failed", "Orders")


def test_slaves_have_an_account_and_follow(guarded):
    with Producer("shop", **guarded.client_options(credentials=credentials(SHOP))) as producer:
        producer.send(Message("Orders", b"apples"))
    guarded.create_topic("Later")
    guarded.settle()
    copies = [message for name in ("broker-a:1", "broker-b:1") for message in guarded.brokers[name].messages("Orders")]
    assert bodies(copies) == bodies(guarded.messages("Orders"))
    assert all(broker.server.topics.select("Later") is not None for broker in guarded.brokers.values())


def test_accounts_can_be_changed_and_stay_after_restart():
    with (
        Cluster(topics=["News"], accounts=ACCOUNTS) as cluster,
        Admin(**cluster.client_options(credentials=credentials(ADMIN))) as admin,
    ):
        names = [account.access_key for account in admin.accounts("broker-a")]
        assert names == sorted(account.access_key for account in ACCOUNTS)
        admin.delete_account(SHOP.access_key)
        cluster.kill()
        cluster.restart()
        refused(cluster.client_options(credentials=credentials(SHOP)), "No acl config for shopkeeper", "News")


def test_tls_and_accounts_work_together():
    with (
        Cluster(topics=["Orders"], slaves=1, tls=True, accounts=ACCOUNTS) as cluster,
        Producer("shop", **cluster.client_options(credentials=credentials(SHOP))) as producer,
    ):
        producer.send(Message("Orders", b"pears"))
        cluster.settle()
        assert bodies(cluster.brokers["broker-a:1"].messages("Orders")) == [b"pears"]


def test_account_files_are_private(guarded):
    home = guarded.broker.settings.broker.rocketmq_home
    assert home is not None
    for name in ("plain_acl.yml", "tools.yml"):
        path = os.path.join(home, "conf", name)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tls": "enforced"}, "tls='enforced': accepted are True, False, 'enforcing', 'permissive'"),
        (
            {"broker": {"tls.server.mode": "permissive"}},
            "tls.server.mode: servers of a test have TLS by the option tls",
        ),
        ({"tls": True, "namesrv": {"tls.server.keyPath": "x"}}, "tls.server.keyPath: servers of a test have TLS by"),
        ({"broker": {"haTlsMode": "enforcing"}}, "haTlsMode: it needs the option tls"),
        ({"accounts": [AccountConfig("short", "shopSecret")]}, "'short': accessKey and secretKey must both be present"),
        ({"accounts": [AccountConfig("shopkeeper", "shopSecret", topic_perms=["Orders"])]}, "format is 'Res=Perm'"),
        ({"accounts": [AccountConfig("shopkeeper", "shopSecret", default_topic_perm="pub")]}, "'pub' is not a permiss"),
        ({"accounts": ["shopkeeper"]}, "accepted are AccountConfig objects, not 'shopkeeper'"),
        ({"accounts": [SHOP], "broker": {"rocketmqHome": "/x"}}, "rocketmqHome: give it without the option accounts"),
    ],
)
def test_impossible_security_is_refused_at_once(options, text):
    with pytest.raises(UsageError, match=text):
        Cluster(**options)
    assert "shopSecret" not in repr(SHOP)
