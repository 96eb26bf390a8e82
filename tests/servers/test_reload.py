"""SIGHUP to a daemon: log files are opened again, and changed settings and accounts are used."""

import os
import signal

import pytest

from rocketd.remoting.wire.codes import RequestCode
from tests.support import wire
from tests.support.server_processes import ServerProcesses

LIMIT = 60.0


class LoggingServers(ServerProcesses):
    """Servers whose twistd logs to a file, as a daemon's does."""

    def twistd_log(self, name):
        return self.directory / f"{name}.twistd.log"

    def _command(self, name, config):
        python, twistd, *words = super()._command(name, config)
        return [python, twistd, "--logfile", str(self.twistd_log(name)), *words]

    def hang_up(self, name, process, text):
        """Rename the log of twistd, send SIGHUP, and wait for a text in the new log."""
        log = self.twistd_log(name)
        log.rename(f"{log}.old")
        os.kill(process.pid, signal.SIGHUP)
        process.wait_for(text, lambda: log.exists() and text in log.read_text(), LIMIT)
        return log.read_text()


@pytest.fixture
def servers(tmp_path):
    servers = LoggingServers(tmp_path, logDir=str(tmp_path / "logs"), brokerPermission="6")
    yield servers
    servers.kill_all()


def settings_of(address, code):
    return wire.call(address, code).body.decode().splitlines()


def test_hang_up_of_broker_reopens_logs_and_takes_live_settings(servers, tmp_path):
    servers.start_namesrv()
    broker = servers.start_broker()
    named = tmp_path / "logs" / "broker.log"
    named.rename(f"{named}.old")
    servers._write("broker", {**servers.broker_config, "autoCreateTopicEnable": "false", "brokerName": "other"})
    text = servers.hang_up("broker", broker, "changed settings that need a restart: brokerName\n")
    assert "changed settings applied now: autoCreateTopicEnable\n" in text
    lines = settings_of(servers.broker_address, RequestCode.GET_BROKER_CONFIG)
    assert {"autoCreateTopicEnable=false", "brokerName=broker-a"} <= set(lines)

    servers._write("broker", {**servers.broker_config, "autoCreateTopicEnable": "perhaps"})
    servers.hang_up("broker", broker, "the settings stay as they are: ")
    lines = settings_of(servers.broker_address, RequestCode.GET_BROKER_CONFIG)
    assert "autoCreateTopicEnable=false" in lines
    assert broker.stop() == 0
    assert "broker broker-a stopped" in named.read_text()
    assert not os.path.exists(servers.store / "abort")


def test_hang_up_of_name_server_takes_live_settings(servers):
    process = servers.start_namesrv()
    path = servers.directory / "namesrv.conf"
    path.write_text(path.read_text() + "orderMessageEnable=true\n")
    servers.hang_up("namesrv", process, "changed settings applied now: orderMessageEnable")
    lines = settings_of(servers.namesrv_address, RequestCode.GET_NAMESRV_CONFIG)
    assert "orderMessageEnable=true" in lines
    assert process.stop() == 0
