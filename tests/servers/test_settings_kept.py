"""Settings that a request changes: shown as waiting, and in effect after the next start, with and without a file."""

import os
import subprocess
from pathlib import Path

import pytest
from server_processes import START_LIMIT, ServerProcesses

from benchmarks.peers import wire

UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG = 25, 26
UPDATE_NAMESRV_CONFIG, GET_NAMESRV_CONFIG = 318, 319


class Servers(ServerProcesses):
    """Starts each server with a file, or with the same settings as options."""

    def __init__(self, directory, *, by_file):
        super().__init__(directory)
        self.by_file = by_file

    def _command(self, name, config):
        command = super()._command(name, config)
        if self.by_file:
            return command
        settings = [line.split("=", 1) for line in Path(config).read_text().splitlines()]
        options = [word for key, value in settings for word in ("-o", f"{key}={value}")]
        return [*command[: command.index("-c")], *options]

    def _write(self, name, config):
        path = self.directory / f"{name}.conf"
        return path if path.exists() else super()._write(name, config)


@pytest.fixture
def servers_of(tmp_path):
    made = []

    def make(by_file):
        made.append(Servers(tmp_path, by_file=by_file))
        return made[0]

    yield make
    for servers in made:
        servers.kill_all()


def values_of(address, code):
    body = wire.call(address, code).body.decode()
    return dict(line.split("=", 1) for line in body.splitlines())


@pytest.mark.parametrize("by_file", [True, False], ids=["file", "options"])
def test_update_of_a_setting_that_waits_is_shown_and_counts_after_the_next_start(servers_of, by_file):
    servers = servers_of(by_file)
    namesrv = servers.start_namesrv()
    broker = servers.start_broker()
    for name, process, address, update, get, start in (
        ("broker", broker, servers.broker_address, UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG, servers.start_broker),
        (
            "namesrv",
            namesrv,
            servers.namesrv_address,
            UPDATE_NAMESRV_CONFIG,
            GET_NAMESRV_CONFIG,
            servers.start_namesrv,
        ),
    ):
        answer = wire.call(address, update, body=b"serverSocketBacklog=77\nserverChannelMaxIdleTimeSeconds=300\n")
        assert (answer.code, name) == (0, name)
        values = values_of(address, get)
        assert values["serverSocketBacklog"] == "1024"
        assert values["rocketd.pending.serverSocketBacklog"] == "77"
        process.stop()
        start()
        values = values_of(address, get)
        assert (values["serverSocketBacklog"], values["serverChannelMaxIdleTimeSeconds"]) == ("77", "300")
        assert "rocketd.pending.serverSocketBacklog" not in values


def test_start_with_a_kept_value_that_cannot_be_used_names_its_file(servers_of):
    servers = servers_of(by_file=False)
    kept = servers.store / "config" / "changedByRequest.properties"
    kept.parent.mkdir(parents=True)
    kept.write_text("# Settings changed by request.\nmaxMessageSize=huge\n")
    command = servers._command("broker", servers._write("broker", servers.broker_config))
    ended = subprocess.run(
        command,
        cwd=servers.directory,
        env={**os.environ, "HOME": str(servers.directory)},
        capture_output=True,
        text=True,
        timeout=START_LIMIT,
    )
    assert ended.returncode == 1
    assert f"{kept}:2: maxMessageSize = huge: accepted is a whole number" in ended.stderr
    assert "correct or remove it" in ended.stderr
