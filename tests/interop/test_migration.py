"""``rocketd adopt`` and ``rocketd give-back``: a store of Apache's broker is adopted, used, given back and used again."""

import json
import shutil
import subprocess

import pytest

from tests.interop.store_journey import GROUP, QUEUES, StoreJourney
from tests.support.cli_processes import COMMAND, DEADLINE
from tests.support.store_brokers import APACHE, IPV4, ROCKETD, SMALL_FILES, StoreBrokers
from tests.support.store_directory import read_log, read_table

ACCOUNTS = """\
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: adminKey
  secretKey: admin-secret
  admin: true
"""


@pytest.fixture
def journey(namesrv, tmp_path_factory):
    directory = tmp_path_factory.mktemp("brokers")
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    brokers = StoreBrokers(directory, namesrv, SMALL_FILES | {"aclEnable": "true", "rocketmqHome": str(home)})
    yield StoreJourney(brokers, tmp_path_factory.mktemp)
    brokers.close()


def run(*words, status=0, complaint=""):
    """Run a command with --json, and return its objects; it must end so, and with this text on standard error, if any."""
    done = subprocess.run(
        [*COMMAND, *map(str, words), "--json"], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, bool(done.stderr)) == (status, bool(complaint)), done
    assert complaint in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def offsets_of(journey):
    """The offsets of the group in the queues of its topic, as the running broker tells them."""
    rows = run("offset", "show", GROUP, "--namesrv", journey.brokers.namesrv)
    return {row["queue"]: row["consumed"] for row in rows if row["topic"] == "T"}


def wrong(found):
    return [each for each in found["findings"] if each["level"] == "wrong"]


def check_numbers(found, journey):
    """The numbers are those of the log and the tables of the broker that was stopped."""
    numbers, records = found["numbers"], read_log(journey.store)
    assert numbers["records"] == len(records)
    for topic in QUEUES:
        assert numbers["messages"][topic] == sum(record.topic == topic for record in records)
    offsets = read_table(journey.store, "consumerOffset")["offsetTable"]
    assert numbers["offsets"] == sum(map(len, offsets.values()))
    assert (numbers["accounts"], numbers["delayed"]) == (1, len(journey.undelivered()))


def test_store_is_adopted_used_given_back_and_used(journey, tmp_path):
    journey.begin(APACHE, IPV4)
    journey.fill()
    journey.consume()
    journey.transact()
    offsets = offsets_of(journey)
    config = journey.brokers.directory / "broker.conf"
    (found,) = run("adopt", config, "--while-running")
    assert (found["ready"], found["commands"][0]["command"][:5]) == (True, "kill ")
    run("adopt", config, status=2, complaint="stop this broker, or add --while-running")
    journey.postpone()
    journey.stop()

    (found,) = run("adopt", config)
    assert (found["ready"], wrong(found)) == (True, [])
    check_numbers(found, journey)

    copy = tmp_path / "copy"
    shutil.copytree(journey.store, copy)
    with (copy / "commitlog" / "00000000000000065536").open("r+b") as file:
        file.write(b"\xff")
    (found,) = run("adopt", config, "-o", f"storePathRootDir={copy}", status=1)
    assert "commitlog/00000000000000065536 at 0: " in wrong(found)[0]["text"]
    (found,) = run("adopt", config, "-o", "enableDLegerCommitLog=true", status=1)
    assert [each["subject"] for each in wrong(found)] == ["setting enableDLegerCommitLog"]

    journey.begin(ROCKETD, IPV4)
    assert offsets_of(journey) == offsets
    journey.fill()
    journey.consume()
    offsets = offsets_of(journey)
    journey.stop()
    (found,) = run("give-back", config)
    assert (found["ready"], wrong(found)) == (True, [])

    journey.begin(APACHE, IPV4)
    assert offsets_of(journey) == offsets
    journey.fill()
    journey.consume()
    journey.stop()
