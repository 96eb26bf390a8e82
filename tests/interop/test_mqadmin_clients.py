"""mqadmin's commands about producers, consumers and their groups print the same for rocketd and for Apache's broker."""

import re

import pytest

from tests.interop.mqadmin_sides import CLUSTER, GROUP, MESSAGES, PRODUCERS, TOPIC, Both


def test_producer_connection(both: Both) -> None:
    # A producer that learnt of a broker by its first send tells it of its group within 30 s.
    both.become_same("producerConnection", "-g", PRODUCERS, "-t", TOPIC, wanted=f"@of-{PRODUCERS}")


def test_producer_connection_of_no_group(both: Both) -> None:
    both.same("producerConnection", "-g", "ghosts", "-t", TOPIC, err="the producer group[ghosts] not exist")


def test_producer(both: Both) -> None:
    both.become_same("producer", "-b", "BROKER", wanted=PRODUCERS, in_any_order=True)


def test_consumer_connection(both: Both) -> None:
    printed = both.same("consumerConnection", "-g", GROUP)
    assert "CONSUME_FROM_FIRST_OFFSET" in printed
    both.same("consumerConnection", "-g", GROUP, "-b", "BROKER")


def test_consumer_connection_of_no_group(both: Both) -> None:
    both.same("consumerConnection", "-g", "nobody", err="No topic route info")
    both.same("consumerConnection", "-g", "nobody", "-b", "BROKER", err="not online")


def test_consumer_progress(both: Both) -> None:
    assert "Diff Total: 0" in both.same("consumerProgress", "-g", GROUP, change=_without_rate)


def test_consumer_progress_with_addresses(both: Both) -> None:
    both.same("consumerProgress", "-g", GROUP, "-s", "true", change=_without_rate)


def test_consumer_progress_of_all(both: Both) -> None:
    assert GROUP in both.same("consumerProgress", in_any_order=True, change=_without_rate)


def test_consumer_progress_of_no_group(both: Both) -> None:
    both.same("consumerProgress", "-g", "nobody", err="No topic route info")


def _without_rate(printed: str) -> str:
    """How many messages a second the group has read lately."""
    printed = re.sub(r"Consume TPS: \d+\.\d\d", "Consume TPS: RATE", printed)
    return re.sub(r"(PUSH +CLUSTERING +)\d+", r"\1RATE", printed)


def test_consumer_status(both: Both) -> None:
    both.same("consumerStatus", "-g", GROUP)


def test_get_consumer_config(both: Both) -> None:
    assert "retryMaxTimes" in both.same("getConsumerConfig", "-g", GROUP)


def test_update_sub_group(both: Both) -> None:
    words = ("-s", "false", "-m", "true", "-d", "true", "-q", "2", "-r", "3", "-i", "1", "-w", "2", "-a", "false")
    assert "retryMaxTimes=3" in both.same("updateSubGroup", "-b", "BROKER", "-g", "made-group", *words)
    assert "retryMaxTimes" in both.same("getConsumerConfig", "-g", "made-group")


def test_delete_sub_group(both: Both) -> None:
    both.same("updateSubGroup", "-c", CLUSTER, "-g", "gone-group")
    both.same("deleteSubGroup", "-b", "BROKER", "-g", "gone-group", "-r", "true")
    both.same("updateSubGroup", "-c", CLUSTER, "-g", "gone-group")
    assert "%RETRY%gone-group" in both.same("deleteSubGroup", "-c", CLUSTER, "-g", "gone-group")
    assert both.same("getConsumerConfig", "-g", "gone-group") == ""


def test_delete_sub_group_of_missing_group(both: Both) -> None:
    both.same("deleteSubGroup", "-b", "BROKER", "-g", "never-made")


def test_update_sub_group_with_odd_names(both: Both) -> None:
    for group in ("TOOLS_CONSUMER", "CID_RMQ_SYS_mine", "with.dot", "x" * 120):
        both.same("updateSubGroup", "-b", "BROKER", "-g", group)
        both.same("getConsumerConfig", "-g", group)


@pytest.mark.parametrize("group", ["x" * 121, "with/slash"])
def test_update_sub_group_whose_retry_topic_cannot_be_stored(both: Both, group: str) -> None:
    """Listed in docs/compatibility.md: Apache's broker accepts a group whose messages cannot be given back."""
    of_apache, of_rocketd = both.each(lambda side: side.mqadmin("updateSubGroup", "-b", "BROKER", "-g", group))
    assert "success" in of_apache["out"]
    assert f"the specified group {group!r} is illegal" in of_rocketd["out"] + of_rocketd["err"]
    both.same("deleteSubGroup", "-b", "BROKER", "-g", group)


def test_delete_sub_group_of_the_system(both: Both) -> None:
    both.same("deleteSubGroup", "-b", "BROKER", "-g", "SELF_TEST_C_GROUP")
    both.same("getConsumerConfig", "-g", "SELF_TEST_C_GROUP")


def test_broadcasting(both: Both) -> None:
    both.ask("consume", group="broadcasting", topic=TOPIC, expression="*", broadcast=True)
    both.become_same("consumerConnection", "-g", "broadcasting", wanted="BROADCASTING")
    both.same("consumerProgress", "-g", "broadcasting", err="return offset table is empty")
    both.same("consumerStatus", "-g", "broadcasting")
    both.same("getConsumerConfig", "-g", "broadcasting")
    # A consumer that is stopped before it has read all is counted with fewer messages at one broker than at the other.
    both.ask("consumed", group="broadcasting", count=MESSAGES)
    both.ask("stop", group="broadcasting")


def test_consumer_status_of_one_client(both: Both) -> None:
    printed = both.same("consumerConnection", "-g", GROUP)
    client = next(word for word in printed.split() if f"@of-{GROUP}" in word)
    both.same("consumerStatus", "-g", GROUP, "-i", client, change=_without_process)


def _without_process(printed: str) -> str:
    """Hide figures of the consumer's process: rates, durations, and Java objects without a text form."""
    printed = re.sub(r"@[0-9a-f]{5,8}\b", "@OBJECT", printed)
    return re.sub(r"\d+\.\d\d\b", "RATE", printed)


def test_consumer_status_of_missing_group(both: Both) -> None:
    both.same("consumerStatus", "-g", "nobody", err="No topic route info")
