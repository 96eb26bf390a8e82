"""The end of a broker, asked for or not avoidable: nothing acknowledged is lost, and the operator reads one clear line."""

import json
import os
import signal
import socket

import pytest

from tests.servers.load import Load, Sent, check_everything_is_there
from tests.support import wire
from tests.support.ports import free_broker_port
from tests.support.server_processes import TOPIC, ServerProcesses

ROUTE_QUERY = 105


@pytest.fixture
def servers(tmp_path):
    processes = ServerProcesses(tmp_path)
    yield processes
    processes.kill_all()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_in_the_middle_of_a_load(number, servers):
    namesrv = servers.start_namesrv()
    broker = servers.start_broker()
    producers = [Sent(f"p{number}") for number in range(3)]
    load = Load(servers.broker_address, producers)
    load.start()
    load.wait_for(1_000)
    wire.await_route(servers.namesrv_address, TOPIC, servers.broker_address)
    os.kill(broker.pid, number)
    os.kill(broker.pid, number)  # an impatient operator
    assert broker.stop() == 0
    load.join()
    assert not (servers.store / "abort").exists()
    answer = wire.call(servers.namesrv_address, ROUTE_QUERY, {"topic": TOPIC})
    assert answer.code == 17, answer
    assert not servers.is_registered()
    assert {p.name for p in (servers.store / "config").iterdir()} >= {"topics.json", "consumerOffset.json"}

    servers.start_broker()
    acknowledged = sum(len(sent.acknowledged) for sent in producers)
    assert acknowledged >= 1_000
    assert check_everything_is_there(servers.broker_address, producers) >= acknowledged
    wire.await_route(servers.namesrv_address, TOPIC, servers.broker_address)
    assert servers.processes[-1].stop() == 0
    assert namesrv.stop() == 0
    for process in servers.processes:
        assert "Traceback" not in process.log.read_text(), process.log


def test_unreachable_name_server_delays_the_stop_little(servers):
    broker = servers.start_broker(registered=False)
    told = f"cannot tell name server {servers.namesrv_address}"
    broker.wait_for(told, lambda: told in broker.log.read_text(), 60)
    assert broker.stop(limit=30) == 0
    text = broker.log.read_text()
    assert "Traceback" not in text
    assert text.count(told) == 1


def assert_one_line(result, *words):
    """The process ended with status 1 and one line that says these words."""
    assert result.returncode == 1, result
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], lines[0]
    assert "Traceback" not in result.stdout


def test_a_port_in_use(servers):
    with socket.create_server(("", free_broker_port())) as taken:
        port = str(taken.getsockname()[1])
        assert_one_line(servers.run_broker(listenPort=port), f"port {port}", "in use")
        assert not (servers.store / "abort").exists()


def test_store_of_another_broker_ends_the_start(servers):
    servers.start_broker(registered=False)
    result = servers.run_broker(listenPort=str(free_broker_port()))
    assert_one_line(result, str(servers.store), "another process")
    assert servers.processes[0].stop() == 0
    assert not (servers.store / "abort").exists()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("listenPort", "many", "listenPort"),
        ("brokerPermission", "9", "brokerPermission"),
        ("flushDiskType", "SOMETIMES", "flushDiskType"),
        ("messageDelayLevel", "1s 5x", "messageDelayLevel"),
        ("namesrvAddr", "nowhere", "namesrvAddr"),
        ("brokerIP1", "127.0.0.1:20911", "brokerIP1"),
        ("brokerIP2", "notahost..", "brokerIP2"),
    ],
)
def test_a_wrong_value(key, value, said, servers):
    assert_one_line(servers.run_broker(**{key: value}), said, value.split()[-1])
    assert not servers.store.exists()


def test_a_store_below_a_file(servers):
    servers.broker_config["storePathRootDir"] = str(servers.directory / "file" / "store")
    (servers.directory / "file").write_text("no directory")
    root = servers.broker_config["storePathRootDir"]
    assert_one_line(servers.run_broker(), f"storePathRootDir = {root}: ", "there is a file where a directory is needed")


@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog"])
def test_unusable_store_path_ends_the_start(key, servers):
    assert_one_line(servers.run_broker(**{key: "/proc/x/y"}), f"{key} = /proc/x/y: ", "No such file or directory")


def test_a_store_without_a_directory(servers):
    assert_one_line(servers.run_broker(storePathRootDir=""), "storePathRootDir = : accepted is a directory")


def test_a_damaged_table(servers):
    config = servers.store / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text('{"dataVersion":')
    assert_one_line(servers.run_broker(), str(config / "topics.json"))
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {}}))
    assert servers.start_broker(registered=False).stop() == 0
