"""The third-party package shown in docs/howto/extension-points.md, built and installed, in a separate broker."""

import re
import socket
import time
from contextlib import suppress
from functools import partial

import pytest

from rocketd.common.message_properties import encode_properties
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.servers.plugin_packages import Environment, Servers, files_of, write_package
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "howto" / "extension-points.md"
LIMIT = 60
SETTINGS = {
    "transactionCheckInterval": "200",
    "transactionTimeOut": "1",
    "transactionCheckMax": "1",
}
PASSWORD = {"password": "open sesame"}


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "venv")


@pytest.fixture
def make_servers(tmp_path, environment):
    made = []

    def make(change=lambda text: text, **settings):
        environment.install(write_package(PAGE, tmp_path / "rocketd-watch", change))
        made.append(Servers(tmp_path, environment, **{**SETTINGS, **settings}))
        return made[-1]

    yield make
    for servers in made:
        servers.kill_all()


def ask(address, *commands):
    """Answers to commands, on one connection."""
    host, port = address.split(":")
    decoder = FrameDecoder()
    answers = []
    with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
        for command in commands:
            connection.sendall(command.encode())
            frames = []
            while not frames:
                data = connection.recv(1 << 16)
                assert data, "closed"
                frames = decoder.feed(data)
            answers.append(RemotingCommand.decode(frames[0]))
    return answers


def send(body, half=False, **fields):
    named = {"PGROUP": "g", "TRAN_MSG": "true"} if half else {}
    fields = {
        "producerGroup": "g",
        "topic": "Watched",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "4" if half else "0",
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "0",
        "properties": encode_properties(named),
        **fields,
    }
    return RemotingCommand(RequestCode.SEND_MESSAGE, fields, body)


def pull(**fields):
    fields = {
        "consumerGroup": "c",
        "topic": "Watched",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": "*",
        **fields,
    }
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def log_has(broker, pattern):
    return re.search(pattern, broker.log.read_text()) is not None


def test_package_of_page_reaches_all_extension_points(make_servers):
    servers = make_servers(aclEnable="true", messageStorePlugIn="watch")
    broker = servers.start_broker(registered=False)
    refused, accepted = ask(servers.broker_address, send(b"no"), send(b"quiet", **PASSWORD))
    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "the field password is wrong")
    assert accepted.code == ResponseCode.SUCCESS
    (half,) = ask(servers.broker_address, send(b"half", half=True, **PASSWORD))
    assert half.code == ResponseCode.SUCCESS
    for pattern in (
        r"watch request 10\b",
        r"watch CONNECT 127\.0\.0\.1:",
        r"watch CLOSE 127\.0\.0\.1:",
        r"watch record Watched 0\b",
        r"watch arrival Watched",
        r"watch checked 0\b",
        r"watch given up \d",
    ):
        broker.wait_for(pattern, partial(log_has, broker, pattern), LIMIT)
    (message,) = ask(servers.broker_address, pull(**PASSWORD))
    assert message.code == ResponseCode.SUCCESS
    assert b"QUIET" in bytes(message.body)
    with socket.create_connection(servers.broker_address.split(":"), timeout=LIMIT) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    broker.wait_for("the failure is told", partial(log_has, broker, r"watch EXCEPTION 127\.0\.0\.1:"), LIMIT)
    assert broker.stop() == 0
    assert log_has(broker, r"processors: .*watch")


def test_validator_beside_the_accounts_needs_both(make_servers, tmp_path):
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("globalWhiteRemoteAddresses:\n- 10.9.9.9\naccounts: []\n")
    settings = {"aclEnable": "true", "rocketmq.acl.plain.file": str(accounts)}
    servers = make_servers(lambda text: text.replace(", True", ", False"), **settings)
    broker = servers.start_broker(registered=False)
    (answer,) = ask(servers.broker_address, send(b"x", **PASSWORD))
    assert answer.code != ResponseCode.SUCCESS
    assert "password" not in answer.remark
    assert broker.stop() == 0


def test_validator_is_not_used_without_acl(make_servers):
    servers = make_servers()
    broker = servers.start_broker(registered=False)
    assert ask(servers.broker_address, send(b"x"))[0].code == ResponseCode.SUCCESS
    assert broker.stop() == 0


def test_broken_validator_or_missing_store_keeps_the_broker_from_starting(make_servers):
    servers = make_servers(lambda text: text.replace("return Passwords()", "return Passwords(1)"))
    done = servers.run_broker(aclEnable="true")
    assert done.returncode == 1
    assert "the access validator watch cannot be made" in done.stderr
    done = servers.run_broker(messageStorePlugIn="other")
    assert done.returncode == 1
    assert "other is not installed; installed are: watch" in done.stderr


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("watch request", "RPC hook watch: 1 call of before_request since"),
        ("watch record", "log dispatcher watch: 1 call of dispatch since"),
    ],
)
def test_stop_abandons_and_names_blocking_extension(make_servers, place, named):
    def block(text):
        return re.sub(
            rf'log\.info\("{place}.*', 'log.info("watch stuck"); __import__("threading").Event().wait()', text
        )

    servers = make_servers(block, pluginStopTimeout="300")
    broker = servers.start_broker(registered=False)
    host, port = servers.broker_address.split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
        connection.sendall(send(b"x").encode())
        broker.wait_for("it blocks", partial(log_has, broker, "watch stuck"), LIMIT)
        assert broker.stop() == 0
    log = broker.log.read_text()
    assert re.search(re.escape(named) + r" \d+\.\d s; the server stops without waiting for it any longer", log)
    assert "Traceback" not in log


def test_page_shows_a_whole_package():
    assert sorted(files_of(PAGE)) == ["pyproject.toml", "rocketd_watch.py", "twisted/plugins/rocketd_watch_plugin.py"]
