"""Brokers with access control as processes: their start, and signatures of rocketd's commands and of a slave."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketd.acl.credentials import Credentials
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.servers.load import Connection
from tests.support.server_processes import SOURCES, ServerProcesses

LIMIT = 60.0  # seconds
ADMIN, READER = Credentials("adminKey", "adminSecret1"), Credentials("readerKey", "readerSecret")
ACCOUNTS = """\
accounts:
- {accessKey: adminKey, secretKey: adminSecret1, admin: true}
- {accessKey: readerKey, secretKey: readerSecret, topicPerms: [News=SUB], groupPerms: [readers=SUB]}
"""


@pytest.fixture
def home(tmp_path):
    """Make a home with these accounts, and tools.yml with the account of the broker."""

    def make(name="home", accounts=ACCOUNTS):
        conf = tmp_path / name / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_text(accounts)
        (conf / "tools.yml").write_text("accessKey: adminKey\nsecretKey: adminSecret1\n")
        for file in conf.iterdir():
            file.chmod(0o600)
        return str(tmp_path / name)

    return make


@contextmanager
def ended(*servers):
    try:
        yield
    finally:
        for each in servers:
            each.kill_all()
            for process in each.processes:
                assert "Traceback" not in process.log.read_text()


def ask(address, code, credentials=None, body=None, **fields):
    connection = Connection(address)
    try:
        return connection.ask(RemotingCommand(code, credentials.sign(fields, body) if credentials else fields, body))
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("accounts", "fault"),
    [
        ("accounts: [{accessKey: adminKey", "plain_acl.yml: line 2, column "),
        (
            ACCOUNTS.replace("adminSecret1", "short"),
            "plain_acl.yml: line 2, accounts number 1: accessKey and secretKey must",
        ),
    ],
    ids=["syntax", "account"],
)
def test_malformed_accounts_end_the_start(tmp_path, home, accounts, fault):
    result = ServerProcesses(tmp_path).run_broker(aclEnable="true", rocketmqHome=home(accounts=accounts))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("rocketd-broker: aclEnable = true: ")
    assert fault in line


def test_missing_rocketmq_home_ends_the_start(tmp_path, monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    result = ServerProcesses(tmp_path).run_broker(aclEnable="true")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "rocketmqHome, which is not set" in line


def rocketd(servers, directory, *arguments):
    """Run a command of ours."""
    return subprocess.run(
        [sys.executable, "-m", "rocketd", *arguments, "--namesrv", servers.namesrv_address],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_commands_sign_with_given_credentials(tmp_path, home):
    servers = ServerProcesses(tmp_path, aclEnable="true", rocketmqHome=home())
    reader = tmp_path / "reader.yml"
    reader.write_text("accessKey: readerKey\nsecretKey: readerSecret\n")
    admin = f"{home('other')}/conf/tools.yml"
    with ended(servers):
        servers.start_namesrv()
        broker = servers.start_broker()
        assert (
            ask(servers.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, READER).code == ResponseCode.SYSTEM_ERROR
        )
        for topic, perm in (("Mail", "6"), ("Closed", "2")):
            made = ask(
                servers.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, ADMIN, topic=topic, perm=perm,
                readQueueNums="1", writeQueueNums="1", defaultTopic="TBW102", topicFilterType="SINGLE_TAG",
                topicSysFlag="0", order="false",
            )  # fmt: skip
            assert made.code == 0, made.remark
        group = b'{"groupName":"closed","consumeEnable":false}'
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert ask(servers.broker_address, code, ADMIN, group).code == ResponseCode.SUCCESS
        sent = rocketd(servers, tmp_path, "produce", "News", "first", "second", "--credentials", admin)
        assert (sent.returncode, sent.stderr) == (0, "")
        for arguments, why in (
            (("--credentials", str(reader)), "No default permission for topic:News"),
            ((), "No accessKey is configured"),
        ):
            refused = rocketd(servers, tmp_path, "produce", "News", "third", *arguments)
            assert refused.returncode != 0
            assert why in refused.stderr
        consumed = rocketd(
            servers,
            tmp_path,
            "consume",
            "News",
            "-g",
            "readers",
            "--count",
            "2",
            "--timeout",
            "40",
            "--credentials",
            reader,
        )
        assert consumed.returncode == 0, consumed.stderr
        assert sorted(consumed.stdout.splitlines()) == ["first", "second"]
        for arguments, why in (
            (("News",), "No accessKey is configured"),
            (("News", "--credentials", reader), "No default permission for group:TOOLS_CONSUMER"),
            (("News", "-g", "others", "--credentials", reader), "No default permission for group:others"),
            (("Mail", "-g", "readers", "--credentials", reader), "No default permission for topic:Mail"),
            (
                ("News", "-g", "closed", "--credentials", admin),
                "answers NO_PERMISSION (16): subscription group no perm",
            ),
            (("Closed", "-g", "readers", "--credentials", admin), "topic Closed has no queue that may be read"),
        ):
            refused = rocketd(servers, tmp_path, "consume", *arguments)
            assert (refused.returncode, refused.stdout) == (1, ""), arguments
            (line,) = refused.stderr.splitlines()
            assert line.startswith("rocketd consume: ")
            assert why in line
        assert "request 310 refused: 'No accessKey is configured'" in broker.log.read_text()
        assert rocketd(servers, tmp_path, "produce", "News", "--credentials", "none.yml").returncode == 2


def test_slave_signs_requests_to_its_master(tmp_path, home):
    guarded = {
        "aclEnable": "true",
        "rocketmqHome": home(),
        "registerNameServerPeriod": "10000",
        "brokerIP2": "127.0.0.1",
    }
    (tmp_path / "slave").mkdir()
    master = ServerProcesses(tmp_path, brokerRole="ASYNC_MASTER", **guarded)
    slave = ServerProcesses(
        tmp_path / "slave", brokerRole="SLAVE", brokerId="1", aclCredentialsFile="conf/tools.yml", **guarded
    )
    slave.namesrv_address = slave.broker_config["namesrvAddr"] = master.namesrv_address
    with ended(slave, master):
        master.start_namesrv()
        process = master.start_broker()
        topic = {"topic": "News", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        created = ask(
            master.broker_address,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            ADMIN,
            topicFilterType="SINGLE_TAG",
            topicSysFlag="0",
            order="false",
            **topic,
        )
        assert created.code == ResponseCode.SUCCESS, created

        def has_topic():
            answer = ask(slave.broker_address, RequestCode.GET_TOPIC_STATS_INFO, ADMIN, topic="News")
            return answer.code == ResponseCode.SUCCESS

        slave.start_broker().wait_for("the topic is copied", has_topic, LIMIT)
        assert "refused: '" not in process.log.read_text()


def test_slave_without_signature_is_refused(tmp_path, home):
    common = {"registerNameServerPeriod": "10000", "brokerIP2": "127.0.0.1"}
    (tmp_path / "slave").mkdir()
    master = ServerProcesses(tmp_path, brokerRole="ASYNC_MASTER", aclEnable="true", rocketmqHome=home(), **common)
    slave = ServerProcesses(tmp_path / "slave", brokerRole="SLAVE", brokerId="1", **common)
    slave.namesrv_address = slave.broker_config["namesrvAddr"] = master.namesrv_address
    with ended(slave, master):
        master.start_namesrv()
        log = Path(master.start_broker().log)
        slave.start_broker().wait_for(
            "the master refuses", lambda: "request 21 refused: 'No accessKey is configured'" in log.read_text(), LIMIT
        )


@pytest.mark.parametrize("strict", ["false", "true"])
def test_message_of_foreign_topic_is_given_back_unless_strict(tmp_path, home, strict):
    """An account with rights to News gives back a message of Mail, to read it in the retries of its group."""
    given = {"aclStrict": strict, "haAllowedAddresses": "any"}
    servers = ServerProcesses(tmp_path, aclEnable="true", rocketmqHome=home(), **given)
    address = servers.broker_address
    with ended(servers):
        servers.start_namesrv()
        log = servers.start_broker().log
        fields = {
            "a": "P", "b": "Mail", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": "",
            "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        sent = ask(address, RequestCode.SEND_MESSAGE_V2, ADMIN, b"secret", **fields)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        offset = int(sent.ext_fields["msgId"][16:], 16)
        given_back = ask(
            address, RequestCode.CONSUMER_SEND_MSG_BACK, READER, offset=str(offset), group="readers", delayLevel="1",
            originTopic="News", maxReconsumeTimes="16",
        )  # fmt: skip
        settings = ask(address, RequestCode.GET_BROKER_CONFIG, READER)
        if strict == "false":
            assert (given_back.code, settings.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
            assert "aclEnable=true without aclStrict=true, as at Apache's broker: an account" in log.read_text()
        else:
            assert "No default permission for topic:Mail" in given_back.remark
            assert "Need admin permission for request code=26" in settings.remark
            assert "without aclStrict" not in log.read_text()
        assert "aclEnable=true guards clients, not the port for slaves" in log.read_text()
