"""Daemons with logDir write named files, in JSON if that is asked for, and say so if they cannot."""

import json

import pytest

from tests.support.server_processes import ServerProcesses


@pytest.fixture
def servers(tmp_path):
    servers = ServerProcesses(tmp_path, logDir=str(tmp_path / "logs"), logFormat="json")
    yield servers
    servers.kill_all()


def test_broker_with_log_dir_writes_named_json_files(servers, tmp_path):
    servers.start_namesrv()
    broker = servers.start_broker()
    assert broker.stop() == 0
    logs = tmp_path / "logs"
    assert {"broker.log"} <= {path.name for path in logs.iterdir()}
    lines = [json.loads(line) for line in (logs / "broker.log").read_text().splitlines()]
    assert any("serves on port" in line["message"] for line in lines)
    assert any("stopped" in line["message"] for line in lines)


def test_unusable_log_dir_ends_the_start(servers, tmp_path):
    (tmp_path / "logs").write_text("a file")
    done = servers.run_broker(namesrvAddr="")
    assert done.returncode == 1
    assert f"logDir = {tmp_path / 'logs'}: " in done.stderr
