"""Queries by id do not depend on the origin of the index: made by dispatch, by a repair, or from the log after its loss."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketd.common.message_properties import decode_properties
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.servers.load import Connection, await_dispatched
from tests.support.server_processes import SOURCES, ServerProcesses

FRAMES = Path(__file__).resolve().parent.parent / "golden" / "frames"
FAR_FUTURE = 1 << 60


def java_batch():
    """Return a batch as the Java client 5.3.3 sent it: with an id for the batch, unlike 4.9.7."""
    for line in (FRAMES / "java5.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["kind"] == "request" and frame["name"] == "SEND_BATCH_MESSAGE":
            (whole,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
            return RemotingCommand.decode(whole)
    raise AssertionError("no batch among the frames")


def own_ids(body):
    """UNIQ_KEY of each message in the body of a batch."""
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at + 16 : at + 20], "big")
        begin = at + 20 + size + 2
        at += int.from_bytes(body[at : at + 4], "big")
        found.append(decode_properties(body[begin:at].decode())["UNIQ_KEY"])
    return found


def found_by(address, topic, ids):
    """How many messages each id finds."""
    await_dispatched(address)
    connection = Connection(address)
    try:
        found = {}
        for key in ids:
            fields = {
                "topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(FAR_FUTURE),
                "_UNIQUE_KEY_QUERY": "true",
            }  # fmt: skip
            answer = connection.ask(RemotingCommand(RequestCode.QUERY_MESSAGE, fields))
            found[key] = (answer.body or b"").count(b"\xda\xa3\x20\xa7") if answer.code == ResponseCode.SUCCESS else 0
        return found
    finally:
        connection.close()


def store_command(servers, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "rocketd", "store", *arguments, str(servers.store)],
        env={**servers._environment(), "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def servers(tmp_path):
    made = ServerProcesses(tmp_path)
    yield made
    made.kill_all()


@pytest.mark.long
def test_ids_of_java_batch_are_found_after_repair_and_kill(servers):
    command = java_batch()
    topic, own = command.ext_fields["b"], own_ids(command.body)
    batch = decode_properties(command.ext_fields["i"])["UNIQ_KEY"]
    assert len({*own, batch}) == len(own) + 1
    wanted = {**dict.fromkeys(own, 1), batch: len(own)}

    broker = servers.start_broker(registered=False)
    connection = Connection(servers.broker_address)
    assert connection.ask(command).code == ResponseCode.SUCCESS
    connection.close()
    assert found_by(servers.broker_address, topic, wanted) == wanted
    assert broker.stop() == 0

    verified = store_command(servers, "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    repaired = store_command(servers, "repair", "--write", "--index")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    broker = servers.start_broker(registered=False)
    assert found_by(servers.broker_address, topic, wanted) == wanted
    assert broker.stop() == 0

    shutil.rmtree(servers.store / "index")
    broker = servers.start_broker(registered=False)
    assert found_by(servers.broker_address, topic, wanted) == wanted
    broker.kill()

    broker = servers.start_broker(registered=False)
    assert found_by(servers.broker_address, topic, wanted) == wanted
    broker.kill()
    # As after a crash of the machine.
    (servers.store / "abort").unlink()
    (servers.store / "abort").touch()
    broker = servers.start_broker(registered=False)
    assert found_by(servers.broker_address, topic, wanted) == wanted
    assert broker.stop() == 0
    verified = store_command(servers, "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
