"""The third-party package that docs/howto/extension-points.md shows, built and installed, in a broker of its own."""

import re
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from plugin_packages import Environment, Servers, files_of, write_package

from rocketd.common.properties import encode_properties
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.frame import FrameDecoder

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "extension-points.md"
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


def test_package_of_the_page_reaches_all_extension_points(make_servers):
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
    assert "other is not installed; there are: watch" in done.stderr


def test_the_page_shows_a_whole_package():
    assert sorted(files_of(PAGE)) == ["pyproject.toml", "rocketd_watch.py", "twisted/plugins/rocketd_watch_plugin.py"]
