"""The third-party package that docs/howto/processor-plugin.md shows, built, installed, called and removed again."""

import socket

import pytest

from rocketd.client.errors import BrokerError
from rocketd.client.sync import Admin
from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.servers.plugin_packages import Environment, Servers, files_of, write_package
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "howto" / "processor-plugin.md"
CODE = 9001
WAIT_SECONDS = 60


def ask(address, command):
    host, port = address.split(":")
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as connection:
        connection.sendall(command.encode())
        frames = []
        while not frames:
            data = connection.recv(65536)
            assert data, "closed"
            frames = decoder.feed(data)
        return RemotingCommand.decode(frames[0]), "{}:{}".format(*connection.getsockname())


def greet(address, who="you", serialize_type=SerializeType.JSON):
    fields = {"who": who} if who else None
    return ask(address, RemotingCommand(CODE, fields, serialize_type=serialize_type))


def send(address):
    fields = {
        "producerGroup": "g",
        "topic": "TBW102",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
    }
    return ask(address, RemotingCommand(RequestCode.SEND_MESSAGE, {**fields, "topic": "Greeted"}, b"x"))[0]


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "venv")


@pytest.fixture
def servers(tmp_path, environment):
    servers = Servers(tmp_path, environment)
    yield servers
    servers.kill_all()


def test_package_of_page_answers_requests(tmp_path, environment, servers):
    package = write_package(PAGE, tmp_path / "rocketd-greeter")
    environment.install(package)
    broker = servers.start_broker(registered=False)
    for serialize_type in (SerializeType.JSON, SerializeType.ROCKETMQ):
        answer, client = greet(servers.broker_address, serialize_type=serialize_type)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.serialize_type == serialize_type
        assert answer.body.decode() == f"Hello you at {client}, this is {servers.broker_address}"
    with Admin("127.0.0.1:1") as admin:
        assert admin.ask(servers.broker_address, CODE, {"who": "you"}).body.startswith(b"Hello you at ")
        with pytest.raises(BrokerError, match="the field <who> is missing"):
            admin.ask(servers.broker_address, CODE)
    refused, _ = greet(servers.broker_address, who=None)
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "the field <who> is missing")
    assert send(servers.broker_address).code == ResponseCode.SUCCESS
    assert broker.stop() == 0
    (line,) = [line for line in broker.log.read_text().splitlines() if "processors: " in line]
    assert line.endswith("; processors: greeter")

    environment.pip("uninstall", "--yes", "rocketd-greeter")
    broker = servers.start_broker(registered=False)
    answer, _ = greet(servers.broker_address)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert broker.stop() == 0
    assert "greeter" not in broker.log.read_text()


def test_a_taken_code_is_refused_and_the_broker_goes_on(tmp_path, environment, servers):
    taken = int(RequestCode.HEART_BEAT)
    package = write_package(
        PAGE, tmp_path / "rocketd-greeter", lambda text: text.replace("(9001,)", f"({taken}, 9001)")
    )
    environment.install(package)
    broker = servers.start_broker(registered=False)
    assert greet(servers.broker_address)[0].code == ResponseCode.SUCCESS
    assert send(servers.broker_address).code == ResponseCode.SUCCESS
    heartbeat, _ = ask(
        servers.broker_address,
        RemotingCommand(taken, body=b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[]}'),
    )
    assert heartbeat.code == ResponseCode.SUCCESS
    assert broker.stop() == 0
    lines = [line for line in broker.log.read_text().splitlines() if "processor plugin" in line]
    assert len(lines) == 1
    assert f"processor plugin greeter: request code {taken} already has a processor" in lines[0]


def test_a_broken_package_is_left_out_and_the_broker_goes_on(tmp_path, environment, servers):
    package = write_package(
        PAGE,
        tmp_path / "rocketd-greeter",
        lambda text: text.replace("self.broker = broker", "self.broker = broker.no_such"),
    )
    environment.install(package)
    broker = servers.start_broker(registered=False)
    assert greet(servers.broker_address)[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert send(servers.broker_address).code == ResponseCode.SUCCESS
    assert broker.stop() == 0
    assert broker.log.read_text().count("processor plugin greeter cannot be loaded; it is left out") == 1


def test_module_that_cannot_be_imported_is_one_line_with_its_path(tmp_path, environment, servers):
    package = write_package(PAGE, tmp_path / "rocketd-greeter")
    (module,) = (package / "twisted" / "plugins").iterdir()
    module.write_text("import nothing_like_this\n")
    environment.install(package)
    broker = servers.start_broker(registered=False)
    assert broker.stop() == 0
    lines = [line for line in broker.log.read_text().splitlines() if "cannot be imported" in line]
    (line,) = lines
    assert "/twisted/plugins/rocketd_greeter_plugin.py cannot be imported: ModuleNotFoundError: No module named" in line
    assert line.endswith("; its plugins are left out")
    # twistd itself has looked for plugins before, once.
    assert broker.log.read_text().count("    import nothing_like_this") <= 2


def test_package_of_page_has_at_most_35_lines():
    files = files_of(PAGE)
    assert sorted(files) == ["pyproject.toml", "rocketd_greeter.py", "twisted/plugins/rocketd_greeter_plugin.py"]
    lines = [line for name, text in files.items() if name.endswith(".py") for line in text.splitlines() if line.strip()]
    assert len(lines) <= 35
