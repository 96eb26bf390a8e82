"""Settings that a request changes: shown as waiting, and in effect after the next start, with and without a file."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.server_processes import START_LIMIT, ServerProcesses

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
def test_update_of_restart_setting_is_shown_and_counts_after_start(servers_of, by_file):
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


def test_newest_of_values_changed_with_and_without_file_counts(servers_of):
    servers = servers_of(by_file=False)
    servers.start_namesrv()
    waiting = "rocketd.pending.serverSocketBacklog"
    for by_file, value in ((False, "77"), (True, "88")):
        servers.by_file = by_file
        broker = servers.start_broker()
        assert (
            wire.call(servers.broker_address, UPDATE_BROKER_CONFIG, body=f"serverSocketBacklog={value}\n".encode()).code
            == 0
        )
        assert values_of(servers.broker_address, GET_BROKER_CONFIG)[waiting] == value
        broker.stop()
    # The options of a start without the file are those of before.
    path = servers.directory / "broker.conf"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines() if "serverSocketBacklog" not in line))
    servers.by_file = False
    servers.start_broker()
    assert values_of(servers.broker_address, GET_BROKER_CONFIG)["serverSocketBacklog"] == "88"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("maxMessageSize=huge", ":2: maxMessageSize = huge: accepted is a whole number"),
        ("haTlsMode=enforcing", "haTlsMode = enforcing: set tls.test.mode.enable=false"),
        (
            "mappedFileSizeCommitLog=2097152",
            "000 has 1048576 bytes, but the settings say 2097152",
        ),
    ],
    ids=["value", "making", "start"],
)
def test_start_with_unusable_kept_value_names_its_file(servers_of, line, error):
    servers = servers_of(by_file=False)
    kept = servers.store / "config" / "changedByRequest.properties"
    kept.parent.mkdir(parents=True)
    kept.write_text(f"# Settings changed by request.\n{line}\n")
    log = servers.store / "commitlog" / "00000000000000000000"
    log.parent.mkdir()
    log.write_bytes(bytes(1048576))
    servers.broker_config.pop("mappedFileSizeCommitLog")
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
    last = ended.stderr.splitlines()[-1]
    assert error in last
    assert f"settings changed by request are in {kept}: correct or remove it" in last
