"""The program itself, and its commands without a cluster: help, decoded ids; and a test for every command."""

import re
import time
from pathlib import Path

from tests.interop.mqadmin_sides import CLUSTER, GROUP, TOPIC, Both, Driver, Side, assert_same_fields

# Until the last round of monitoring that is waited for, and for it: they begin 20 s after the start, a minute apart.
MONITOR_LIMIT = 240.0
ROUNDS = 3
MONITOR = "__MONITOR_CONSUMER"
_REPORT = re.compile(r"\[MONITOR\] +(.*)")


def test_every_command_has_a_test(both: Both) -> None:
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_mqadmin_*.py"))
    used = set(re.findall(r'(?:same|_exported)\(\s*(?:both, )?"(\w+)"', tests)) | {"startMonitoring"}
    of_apache, of_rocketd = both.ask("commands")
    assert of_apache == of_rocketd
    assert set(of_apache["commands"]) - used == set()


def test_start_monitoring(both: Both) -> None:
    """It runs for ever, and writes its observations into its log, from the 20th second on.

    Other groups may be reading in the moment of a round, at one side more than at the other: one round has to be alike.
    """
    programs = both.each(lambda side: Driver(side.directory / "monitor", side.namesrv))
    try:
        for program, side in zip(programs, (both.apache, both.rocketd), strict=True):
            started = program.ask("mqadmin", words=["startMonitoring", "-n", side.namesrv])
            assert started == {"out": "", "err": ""}
        for number in range(ROUNDS):
            of_apache, of_rocketd = both.each(lambda side, number=number: _reports(side, number))
            try:
                assert_same_fields("what startMonitoring reports", of_apache, of_rocketd, in_any_order=True)
                assert GROUP in of_apache
                break
            except AssertionError:
                if number == ROUNDS - 1:
                    raise
        # The offsets of its consumer stay, and other commands print them: both brokers have to have them all.
        offsets = rf"(?s)%RETRY%{MONITOR} .*OFFSET_MOVED_EVENT "
        both.become_same("consumerProgress", "-g", MONITOR, wanted=offsets, change=_without_rate)
    finally:
        for program in programs:
            program.stop()
    both.become_same("consumerConnection", "-g", MONITOR, err="not online")


def _without_rate(printed: str) -> str:
    """How many messages a second the group has read lately."""
    return "\n".join(line for line in printed.splitlines() if not line.startswith("Consume TPS:"))


def _reports(side: Side, number: int) -> str:
    """Return the output of a round of monitoring, without its retry topic, which it may not have found yet."""
    log = side.directory / "monitor" / "logs" / "rocketmqlogs" / "rocketmq_client.log"
    deadline = time.monotonic() + MONITOR_LIMIT
    while True:
        found = _REPORT.findall(log.read_text() if log.exists() else "")
        lines = [line for line in found if "%RETRY%__MONITOR_CONSUMER" not in line]
        ends = [place + 1 for place, line in enumerate(lines) if "endRound" in line]
        if len(ends) > number:
            return side.names.given_to("\n".join(lines[ends[number - 1] if number else 0 : ends[number]]))
        assert time.monotonic() < deadline, lines
        time.sleep(0.5)


def test_help(both: Both) -> None:
    assert "updateTopic" in both.same(alone=True)
    assert "queue nums" in both.same("help", "updateTopic", alone=True)


def test_command_without_required_options_prints_usage(both: Both) -> None:
    assert "usage: mqadmin updateOrderConf" in both.same("updateOrderConf", "-t", TOPIC, "-m", "other")


def test_decode_message_id(both: Both) -> None:
    words = ("DecodeMessageId", "-i", "AC11000100002A9F0000000000000000")
    assert "not exist" in both.same(*words)
    assert "ip=" in both.same(*words, unlisted=True)


def test_consumer(both: Both) -> None:
    assert "not exist" in both.same("consumer", "-g", GROUP)
    assert "Rebalance OK" in both.same("consumer", "-g", GROUP, unlisted=True)


def test_cluster_of_no_name(both: Both) -> None:
    assert "Make sure the specified clusterName exists" in both.same("brokerStatus", "-c", f"not-{CLUSTER}")
