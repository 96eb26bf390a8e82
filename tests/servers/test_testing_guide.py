"""The guide to testing: its programs are tests, which pytest runs, with the plugin and without."""

import os
import re
import shlex
import socket
import subprocess
import sys

import pytest

from rocketd.testing import Cluster
from rocketd.testing.__main__ import main, parse_account
from rocketd.testing.console import COMMANDS, CommandConsole, usage_text
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES

GUIDE = ROOT / "docs" / "howto" / "testing.md"
LIMIT = 120  # seconds
CONFIG = "[pytest]\naddopts = -p no:rocketd -p rocketd.testing.pytest_plugin --strict-markers -p no:cacheprovider\n"


def run_pytest(directory, *arguments):
    (directory / "pytest.ini").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=short", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.mark.long
def test_programs_of_the_guide(tmp_path):
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 10
    for number, program in enumerate(programs):
        (tmp_path / f"test_program_{number}.py").write_text(program)
    ran = run_pytest(tmp_path)
    assert re.search(r"\b15 passed", ran.stdout), ran.stdout
    assert "failed" not in ran.stdout


SESSIONS = re.findall(r"^```console\n\$ python (.*?)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("session", range(2))
def test_commands_of_the_guide(session):
    assert len(SESSIONS) == 2
    command, text = SESSIONS[session]
    lines = text.splitlines()
    ran = run_console(*shlex.split(command), commands=lines[1::2])
    address, *answers = ran.stdout.splitlines()
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address), ran.stderr
    assert answers == lines[2::2]


def run_console(*command, commands):
    return subprocess.run(
        [sys.executable, *command],
        input="".join(f"{line}\n" for line in commands),
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_console_with_tls_names_authority_and_brokers():
    options = (
        "--brokers",
        "one,two",
        "--tls",
        "--account",
        "shopkeeper:shopSecret",
        "--broker",
        "defaultTopicQueueNums=3",
    )
    commands = [
        "brokers",
        "ca",
        "create-topic T 2 two",
        "count T two",
        "count T one",
        "kill three",
        "kill one",
        "brokers",
    ]
    ran = run_console("-m", "rocketd.testing", *options, commands=[*commands, "settle", "cut two", "slow-fsync 1s one"])
    _, brokers, ca, made, two, one, unknown, killed, left, *rest = ran.stdout.splitlines()
    assert (brokers, made, two, killed, left, rest) == ("ok one two", "ok", "ok 0", "ok", "ok two", ["ok"] * 3)
    assert re.fullmatch(r"ok /\S+/ca\.pem", ca)
    assert one.startswith("error topic 'T' is not at one; it is at two")
    assert unknown.startswith("error no broker 'three': there are one, two")
    assert "aclStrict" not in ran.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--brokers", "0"], "brokers=0: accepted is a whole number from 1 on"),
        (["--brokers", "-1"], "brokers=-1: accepted is a whole number from 1 on"),
        (["--brokers", "../../x"], "'../../x' is not a name"),
        (["--broker", "flushDiskType=FOO"], "error: flushDiskType = FOO: accepted is one of ASYNC_FLUSH, SYNC_FLUSH"),
        (["--broker", "nosuch=1"], "error: 'nosuch' is not a setting of a broker"),
        (["--broker", "messageStorePlugIn=none.Such"], "error: messageStorePlugIn = none.Such: none.Such is not inst"),
        (["--port", "99999"], "error: port=99999: accepted is a port, at most 65535"),
        (["--account", "shopkeeper:shopSecret:foo:bar=SUB"], "'foo:bar=SUB' is not admin, a right such as Orders=PUB"),
        (["--account", "shopkeeper:shopSecret:group:"], "'group:' is not admin, a right such as Orders=PUB"),
        (["--account", "shopkeeper"], "'shopkeeper' is not KEY:SECRET"),
        (["--account", "shop:shopSecret"], "accessKey and secretKey must both be present and longer than 6"),
        (["--account", "shopkeeper:shopSecret:Orders"], "format is 'Res=Perm'"),
        (["--tls", "maybe"], "invalid choice: 'maybe'"),
        (["--broker", "brokerRole=SLAVE"], "slaves come from the option slaves"),
    ],
)
def test_console_with_impossible_options_says_why(capsys, options, text):
    with pytest.raises(SystemExit):
        main(options)
    assert text in capsys.readouterr().err


def test_console_with_used_port_says_so(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(SystemExit):
        main(["--port", str(server.getsockname()[1])])
    assert "it is in use by another process; stop that process or set another port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("advance", "error usage: advance 2h"),
        ("advance 2h 3h", "error usage: advance 2h"),
        ("advance 1.2.3s", "error '1.2.3' is not a number"),
        ("count", "error usage: count TOPIC [BROKER]"),
        ("kill broker-a broker-b", "error usage: kill [BROKER]"),
        ("create-topic", "error usage: create-topic NAME [4] [BROKER ...]"),
        ("create-topic T broker-a", "error 'broker-a' is not a whole number"),
        ("drop times=x", "error 'x' is not a whole number"),
        ("stop now", "error usage: stop"),
    ],
)
def test_command_with_wrong_words_answers_its_usage(line, answer):
    console = CommandConsole(Cluster())
    assert console.answer(line) == answer
    assert not console.stopped


def test_each_command_has_a_usage():
    console = CommandConsole(Cluster())
    assert console.answer("halt") == f"error unknown command 'halt': known are {', '.join(COMMANDS)}"
    for name, (usage, _) in COMMANDS.items():
        assert usage.split()[0] == name
        assert f"\n  {usage}" in usage_text()


def test_account_of_console_has_its_rights():
    account = parse_account("shopkeeper:shopSecret:admin,Orders=PUB|SUB,group:shop=SUB")
    assert (account.admin, account.topic_perms, account.group_perms) == (True, ["Orders=PUB|SUB"], ["shop=SUB"])
    assert account.default_topic_perm is account.default_group_perm is None
    account = parse_account("shopkeeper:shopSecret")
    assert (account.admin, account.default_topic_perm, account.default_group_perm) == (False, "PUB|SUB", "PUB|SUB")


def test_plugin_imports_nothing_until_its_fixture_is_asked_for(tmp_path):
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\n\ndef test_nothing():\n"
        "    assert 'rocketd.testing.pytest_plugin' in sys.modules\n"
        "    assert not {'rocketd.broker', 'rocketd.client', 'twisted', 'rocketd.testing.cluster'} & set(sys.modules)\n"
    )
    ran = run_pytest(tmp_path, "-p", "no:pytest_twisted", "-p", "no:twisted")
    assert ran.returncode == 0, ran.stdout + ran.stderr
