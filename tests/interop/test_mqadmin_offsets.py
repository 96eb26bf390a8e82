"""mqadmin's commands that move consumer groups print and do the same for rocketd and for Apache's broker."""

import re

from tests.interop.mqadmin_sides import CLUSTER, GROUP, PRODUCERS, QUEUES, TOPIC, Both, message

COUNT = 8
LONG_AGO = "2001-01-01#00:00:00:000"


def _fill(both: Both, topic: str, group: str) -> None:
    """A topic with messages, and a group that has read none of them and is not there."""
    both.same("updateTopic", "-c", CLUSTER, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
    both.same("updateSubGroup", "-c", CLUSTER, "-g", group)
    both.send(PRODUCERS, [message(topic, number) for number in range(COUNT)])


def _consume(both: Both, topic: str, group: str) -> None:
    _fill(both, topic, group)
    both.ask("consume", group=group, topic=topic, expression="*")
    both.ask("consumed", group=group, count=COUNT)


def _await_offsets(both: Both, topic: str, group: str, offset: int) -> None:
    """Return once a group has this offset in each queue of a topic, at both: the offsets of its members have arrived."""
    row = rf"{topic} +broker-a +\d +\d+ +{offset} .*\n"
    both.become_same("consumerProgress", "-g", group, wanted=rf"(?m)^({row}){{{QUEUES}}}", change=_without_rate)


def _without_rate(printed: str) -> str:
    """How many messages a second the group has read lately."""
    return "\n".join(line for line in printed.splitlines() if not line.startswith("Consume TPS:"))


def test_reset_offset_by_time_of_stopped_group(both: Both) -> None:
    _consume(both, "ResetGone", "reset-gone")
    both.ask("stop", group="reset-gone")
    _await_offsets(both, "ResetGone", "reset-gone", 2)
    # Only then is the group known to be gone.
    words = ("-g", "reset-gone", "-t", "ResetGone", "-s", LONG_AGO)
    both.become_same("resetOffsetByTime", *words, wanted="#rollbackOffset")
    _await_offsets(both, "ResetGone", "reset-gone", 0)


def test_reset_offset_by_time_of_running_group(both: Both) -> None:
    _consume(both, "ResetHere", "reset-here")
    words = ("-g", "reset-here", "-t", "ResetHere", "-s", LONG_AGO)
    printed = both.same("resetOffsetByTime", *words, in_any_order=True)
    assert [line.split() for line in printed.splitlines()[2:]].count(["broker-a", "3", "0"]) == 1
    # It reads all of it again.
    both.ask("consumed", group="reset-here", count=COUNT)
    _await_offsets(both, "ResetHere", "reset-here", 2)


def test_reset_offset_by_time_of_a_group_without_offsets(both: Both) -> None:
    _fill(both, "ResetNever", "reset-never")
    both.same("resetOffsetByTime", "-g", "reset-never", "-t", "ResetNever", "-s", "now", err="not exist")


def test_reset_to_time_after_the_last_message_moves_to_the_end(both: Both) -> None:
    """Listed in docs/compatibility.md: Apache's broker moves the group to the last message."""
    _consume(both, "ResetAhead", "reset-ahead")
    both.await_dispatch()
    words = ("-g", "reset-ahead", "-t", "ResetAhead", "-s", "2100-01-01#00:00:00:000")
    printed = both.each(lambda side: side.mqadmin("resetOffsetByTime", *words)["out"])
    of_apache, of_rocketd = [sorted(re.findall(r"broker-a +(\d) +(\d+)", text)) for text in printed]
    assert of_apache == [(str(queue), "1") for queue in range(QUEUES)]
    assert of_rocketd == [(str(queue), "2") for queue in range(QUEUES)]


def test_skip_accumulated_message_of_running_group(both: Both) -> None:
    words = ("-g", GROUP, "-t", TOPIC)
    printed = both.same("skipAccumulatedMessage", *words, in_any_order=True)
    assert [line.split() for line in printed.splitlines()].count(["broker-a", "3", "3"]) == 1


def test_skip_accumulated_message_of_stopped_group(both: Both) -> None:
    _consume(both, "Skipped", "skipping")
    both.ask("stop", group="skipping")
    both.send(PRODUCERS, [message("Skipped", number) for number in range(COUNT)])
    both.become_same("skipAccumulatedMessage", "-g", "skipping", "-t", "Skipped", wanted="#rollbackOffset")
    _await_offsets(both, "Skipped", "skipping", 4)


def test_clone_group_offset(both: Both) -> None:
    _consume(both, "Cloned", "clone-of")
    both.same("updateSubGroup", "-c", CLUSTER, "-g", "clone-to")
    words = ("-s", "clone-of", "-d", "clone-to", "-t", "Cloned", "-o", "true")
    assert "clone group offset success" in both.same("cloneGroupOffset", *words)


def test_reset_offset_by_time_old(both: Both) -> None:
    both.same("resetOffsetByTimeOld", "-g", GROUP, "-t", TOPIC, "-s", LONG_AGO)
    words = ("-g", "old-way", "-t", "OldWay", "-s", LONG_AGO)
    _consume(both, "OldWay", "old-way")
    both.ask("stop", group="old-way")
    assert "#rollbackOffset" in both.same("resetOffsetByTimeOld", *words, unlisted=True)


def test_get_consumer_status(both: Both) -> None:
    assert "does not exist" not in both.same("getConsumerStatus", "-g", GROUP, "-t", TOPIC)
    words = ("-g", GROUP, "-t", TOPIC)
    assert f"@of-{GROUP}" in both.same("getConsumerStatus", *words, in_any_order=True, unlisted=True)


def test_offsets_go_with_their_topic(both: Both) -> None:
    """Listed in docs/compatibility.md: of a topic that is recreated, Apache's broker still has the old offsets."""
    _consume(both, "MadeAgain", "old-readers")
    both.ask("stop", group="old-readers")
    _await_offsets(both, "MadeAgain", "old-readers", 2)
    both.same("deleteTopic", "-c", CLUSTER, "-t", "MadeAgain")
    both.same("updateTopic", "-c", CLUSTER, "-t", "MadeAgain", "-r", str(QUEUES), "-w", str(QUEUES))
    both.send(PRODUCERS, [message("MadeAgain", 0)])
    of_apache, of_rocketd = both.each(lambda side: side.mqadmin("consumerProgress", "-g", "old-readers")["out"])
    both.same("deleteTopic", "-c", CLUSTER, "-t", "MadeAgain")
    assert "Diff Total: -7" in of_apache
    assert "MadeAgain" not in of_rocketd
    assert "Diff Total: 0" in of_rocketd


def test_reset_offset_by_time_without_force(both: Both) -> None:
    words = ("-g", GROUP, "-t", TOPIC, "-s", "now", "-f", "false")
    assert "force[false]" in both.same("resetOffsetByTime", *words, in_any_order=True)


def test_reset_offset_by_time_for_c(both: Both) -> None:
    # The consumer is none of C++, and cannot read that: nothing moves.
    words = ("-g", GROUP, "-t", TOPIC, "-s", "now", "-c")
    both.same("resetOffsetByTime", *words, in_any_order=True)
