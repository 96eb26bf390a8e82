"""rocketd.testing's cluster and clients in other languages: long times are over in seconds, and a kill loses nothing."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketd.testing import Cluster
from tests.interop.toolchain import PROGRAMS, run_client
from tests.support.places import ROOT
from tests.support.store_wire import await_condition

COUNT = 10
DELAY_MS = 2_400_000


@pytest.fixture(params=["java", "go"])
def program(request, lacking, tmp_path):
    """Run one command of a client program against an address."""
    reason = PROGRAMS[request.param].missing()
    if reason is not None:
        lacking(reason)

    def run(address, command, topic, *arguments):
        home = tmp_path / command
        home.mkdir(exist_ok=True)
        return run_client(request.param, command, "--namesrv", address, "--topic", topic, *arguments, home=home).lines

    return run


def has_member(cluster, group):
    found = cluster.broker.consumers.find(group)
    return found is not None and bool(found.clients())


def test_clients_of_other_languages_follow_virtual_time(program):
    with Cluster(topics=["Later"]) as cluster, ThreadPoolExecutor() as threads:
        address = cluster.listen()
        sent = program(
            address, "send", "Later", "--group", "P", "--count", COUNT, "--properties", f"TIMER_DELAY_MS={DELAY_MS}"
        )
        assert {line["status"] for line in sent} == {"SEND_OK"}
        assert cluster.messages("Later") == []
        begin = cluster.now().timestamp() * 1000
        consuming = threads.submit(
            program, address, "consume", "Later", "--group", "C", "--count", COUNT, "--timeout", 90
        )
        await_condition("the consumer is a member of its group", lambda: has_member(cluster, "C"))
        cluster.advance(minutes=35)
        assert has_member(cluster, "C")
        assert not consuming.done()
        cluster.advance(minutes=6)
        received = consuming.result()
    assert sorted(line["index"] for line in received) == list(range(COUNT))
    assert min(line["storeTimestamp"] for line in received) >= begin - 30_000 + DELAY_MS


def test_testing_program_is_driven_by_commands(program):
    """As a test in that language would do it: a separate process, with commands on its standard input."""
    with subprocess.Popen(
        [sys.executable, "-m", "rocketd.testing", "--topic", "Driven"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            address = process.stdout.readline().strip()

            def say(command):
                process.stdin.write(f"{command}\n")
                process.stdin.flush()
                return process.stdout.readline().strip()

            program(address, "send", "Driven", "--group", "P", "--count", COUNT)
            assert say("count Driven") == f"ok {COUNT}"
            assert say("kill") == "ok"
            assert say("count Driven").startswith("error")
            assert say("restart") == "ok"
            received = program(address, "consume", "Driven", "--group", "C", "--count", COUNT, "--timeout", 90)
            assert sorted(line["index"] for line in received) == list(range(COUNT))
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
