"""mqadmin's commands about messages print the same for rocketd and for Apache's broker in the same state."""

import re
import time

import pytest

from tests.interop.mqadmin_sides import GROUP, PRODUCERS, TOPIC, Both, Side, message


@pytest.fixture(scope="module")
def sent(both: Both) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Messages of a separate topic; their ids at each side."""
    both.same("updateTopic", "-b", "BROKER", "-t", "Looked", "-r", "4", "-w", "4")
    return both.send(PRODUCERS, [message("Looked", number) for number in range(8)])


def test_query_msg_by_key(both: Both, sent: object) -> None:
    assert both.same("queryMsgByKey", "-t", "Looked", "-k", "key-5").splitlines()[1].split()[1:] == ["1", "1"]


def test_query_msg_by_no_key(both: Both, sent: object) -> None:
    both.same("queryMsgByKey", "-t", "Looked", "-k", "nobody", err="query message by key finished, but no message")


def test_query_msg_by_offset(both: Both, sent: object) -> None:
    printed = both.same("queryMsgByOffset", "-t", "Looked", "-b", "broker-a", "-i", "2", "-o", "1")
    assert "[key-6]" in printed


def test_query_msg_by_offset_beyond_the_end(both: Both, sent: object) -> None:
    assert both.same("queryMsgByOffset", "-t", "Looked", "-b", "broker-a", "-i", "2", "-o", "100") == ""


def test_print_msg(both: Both, sent: object) -> None:
    assert both.same("printMsg", "-t", "Looked").count("MSGID:") == 8


def test_print_msg_by_tag(both: Both, sent: object) -> None:
    both.same("printMsg", "-t", "Looked", "-s", "TagA", "-d", "false")


def test_print_msg_by_queue(both: Both, sent: object) -> None:
    words = ("-t", "Looked", "-a", "broker-a", "-i", "3", "-p", "true", "-d", "true", "-f", "true")
    assert "Tag: TagA" in both.same("printMsgByQueue", *words)


def test_consume_message(both: Both, sent: object) -> None:
    assert both.same("consumeMessage", "-t", "Looked").count("Consume ok") == 4


def test_consume_message_of_a_queue(both: Both, sent: object) -> None:
    words = ("-t", "Looked", "-b", "broker-a", "-i", "1", "-o", "1")
    assert "Consume ok" in both.same("consumeMessage", *words)


def test_send_message(both: Both, sent: object) -> None:
    words = ("-t", "Sent", "-p", "the body", "-k", "the-key", "-c", "TheTag", "-b", "broker-a", "-i", "1")
    both.same("updateTopic", "-b", "BROKER", "-t", "Sent")
    assert "SEND_OK" in both.same("sendMessage", *words)
    assert "the body" in both.same("printMsg", "-t", "Sent")


def test_check_msg_send_rt(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Timed", "-r", "2", "-w", "2")
    printed = both.same("checkMsgSendRT", "-t", "Timed", "-a", "4", "-s", "10", change=_without_times)
    assert printed.count("true") == 4


def _without_times(printed: str) -> str:
    """How long a send took."""
    return re.sub(r"(true +|Avg RT: )[\d.]+", r"\1TIME", printed)


def test_query_msg_by_id(both: Both, sent: tuple[list[dict[str, str]], list[dict[str, str]]]) -> None:
    ids = {side.kind: ids[3]["offsetId"] for side, ids in zip((both.apache, both.rocketd), sent, strict=True)}
    assert "[key-3]" in both.same("queryMsgById", "-i", ids)


def test_query_msg_by_unique_key(both: Both, sent: tuple[list[dict[str, str]], list[dict[str, str]]]) -> None:
    ids = {side.kind: ids[3]["id"] for side, ids in zip((both.apache, both.rocketd), sent, strict=True)}
    assert "[key-3]" in both.same("queryMsgByUniqueKey", "-t", "Looked", "-i", ids)
    assert "[key-3]" in both.same("queryMsgByUniqueKey", "-t", "Looked", "-i", ids, "-a")


def test_query_cq(both: Both, sent: object) -> None:
    assert "max: 2, min: 0" in both.same("queryCq", "-t", "Looked", "-q", "1", "-i", "0")


def test_query_cq_for_a_group(both: Both, sent: object) -> None:
    assert "Subscription data" in both.same("queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "-g", GROUP, "-b", "BROKER")


def test_query_msg_by_id_gives_it_to_a_consumer(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Pushed", "-r", "4", "-w", "4")
    ids = _ids(both, both.send(PRODUCERS, [message("Pushed", 1)]), "offsetId")
    client = {side.kind: _client_of(side) for side in (both.apache, both.rocketd)}
    printed = both.same("queryMsgById", "-i", ids, "-g", GROUP, "-d", client, change=_without_spent_time)
    assert "consumeResult=CR_SUCCESS" in printed


def test_query_msg_by_unique_key_gives_it_to_a_consumer(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "PushedToo", "-r", "4", "-w", "4")
    ids = _ids(both, both.send(PRODUCERS, [message("PushedToo", 1)]), "id")
    client = {side.kind: _client_of(side) for side in (both.apache, both.rocketd)}
    words = ("-t", "PushedToo", "-i", ids, "-g", GROUP, "-d", client)
    assert "consumeResult=CR_SUCCESS" in both.same("queryMsgByUniqueKey", *words, change=_without_spent_time)


def test_query_msg_by_id_sends_it_again(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Again", "-r", "1", "-w", "1")
    ids = _ids(both, both.send(PRODUCERS, [message("Again", 0)]), "offsetId")
    assert "sendStatus=SEND_OK" in both.same("queryMsgById", "-i", ids, "-s", "true")
    assert both.same("printMsg", "-t", "Again").count("MSGID:") == 2


def test_query_msg_trace_by_id(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Traced", "-r", "1", "-w", "1")
    deadline = time.monotonic() + 200.0
    while True:
        ids = both.send_traced("Traced")
        try:
            both.become_same("queryMsgTraceById", "-i", ids, wanted="Pub", change=_without_cost, limit=5.0)
            break
        except AssertionError:
            if time.monotonic() > deadline:
                raise
    # How long the send took stands in the trace in digits, one or more.
    both.level()


def _ids(both: Both, sent: tuple[list[dict[str, str]], list[dict[str, str]]], which: str) -> dict[str, str]:
    """The id of the last of these messages, for each side."""
    return {side.kind: ids[-1][which] for side, ids in zip((both.apache, both.rocketd), sent, strict=True)}


def _client_of(side: Side) -> str:
    """The id of the only member of the group."""
    return next(
        word for word in side.mqadmin("consumerConnection", "-g", GROUP)["out"].split() if f"@of-{GROUP}" in word
    )


def _without_spent_time(printed: str) -> str:
    """How long the consumer took."""
    return re.sub(r"spentTimeMills=\d+", "spentTimeMills=TIME", printed)


def _without_cost(printed: str) -> str:
    """How long the send took, and the group, which is named after the time."""
    return re.sub(r"\b\d+ms\b", "COST", printed)


def test_query_msg_by_id_of_no_message(both: Both) -> None:
    ids = {side.kind: f"7F000001{int(side.broker.split(':')[1]):08X}{1:016X}" for side in (both.apache, both.rocketd)}
    both.same("queryMsgById", "-i", ids, err="can not find message by the offset, 1")
    both.same("queryMsgById", "-i", "nonsense", err="query message by id finished, but no message")


def test_query_msg_by_unique_key_of_no_message(both: Both) -> None:
    both.same("queryMsgByUniqueKey", "-t", TOPIC, "-i", "7F00000100002A9F0000000000000000", err="but no message")


def test_query_cq_of_nothing(both: Both) -> None:
    both.same("queryCq", "-t", TOPIC, "-q", "9", "-i", "0", err="9@Basic is not exist!")
    both.same("queryCq", "-t", TOPIC, "-q", "0", "-i", "99", err="Exception")
    both.same("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-g", "nobody")


def test_query_cq_for_a_group_with_an_expression(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Filtered", "-r", "4", "-w", "4")
    both.ask("consume", group="filtering", topic="Filtered", expression="index > 3 AND TAGS = 'TagA'", sql=True)
    # The filter is there once the group is.
    both.become_same("consumerConnection", "-g", "filtering", wanted="index > 3")
    both.send(PRODUCERS, [message("Filtered", number) for number in range(8)])
    both.ask("consumed", group="filtering", count=2)
    printed = both.same("queryCq", "-t", "Filtered", "-q", "1", "-i", "0", "-g", "filtering")
    assert "eval=true" in printed
    assert "eval=false" in printed
    both.ask("stop", group="filtering")


def test_print_msg_between_times(both: Both, sent: object) -> None:
    words = ("-t", "Looked", "-b", "2001-01-01#00:00:00:000", "-e", "2100-01-01#00:00:00:000")
    both.same("printMsg", *words, change=_without_max_offset)
    both.same("printMsgByQueue", *words, "-a", "broker-a", "-i", "1")


def _without_max_offset(printed: str) -> str:
    """That of a time after the last message, listed in docs/compatibility.md: Apache's broker returns the last message."""
    return re.sub(r"maxOffset=\d+", "maxOffset=", printed)


def test_print_msg_after_the_last_message_prints_none(both: Both, sent: object) -> None:
    """Listed in docs/compatibility.md: Apache's broker returns the last message."""
    both.await_dispatch()
    words = ("-t", "Looked", "-b", "2100-01-01#00:00:00:000")
    printed = both.each(lambda side: side.mqadmin("printMsg", *words)["out"])
    of_apache, of_rocketd = [re.findall(r"minOffset=(\d+), maxOffset=(\d+)", text) for text in printed]
    assert of_apache == [("1", "2")] * 4
    assert of_rocketd == [("2", "2")] * 4


def test_delayed_messages(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Delayed", "-r", "4", "-w", "4")
    sent = both.send(PRODUCERS, [{**message("Delayed", 0), "delay": 0}, {**message("Delayed", 1), "delay": 1}])
    for which in (0, 1):
        ids = {side.kind: ids[which]["offsetId"] for side, ids in zip((both.apache, both.rocketd), sent, strict=True)}
        assert f"[key-{which}]" in both.same("queryMsgById", "-i", ids)
    assert both.become_same("printMsg", "-t", "Delayed", wanted="index=1").count("MSGID:") == 2


def test_dead_letters(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Refused", "-r", "4", "-w", "4")
    both.ask("consume", group="refusing", topic="Refused", expression="*", refuse=True)
    both.send(PRODUCERS, [message("Refused", 0)])
    both.ask("consumed", group="refusing", count=1)
    printed = both.become_same("printMsg", "-t", "%DLQ%refusing", wanted="MSGID:")
    assert "ORIGIN_MESSAGE_ID=OFFSET-ID" in printed
    both.same("topicRoute", "-t", "%DLQ%refusing")
    both.ask("stop", group="refusing")


def test_send_message_makes_a_topic(both: Both) -> None:
    assert "SEND_OK" in both.same("sendMessage", "-t", "MadeOnUse", "-p", "x", change=_without_queue)
    both.same("topicRoute", "-t", "MadeOnUse")


def _without_queue(printed: str) -> str:
    """Which queue comes first: a new producer begins anywhere."""
    return re.sub(r"(broker-a +)\d", r"\1QUEUE", printed)


def test_consume_message_with_limits(both: Both, sent: object) -> None:
    both.same("consumeMessage", "-t", "Looked", "-c", "3")
    both.same("consumeMessage", "-t", "Looked", "-b", "broker-a", "-i", "1", "-c", "1", "-g", GROUP)
    assert "Please input a positive messageNumber!" in both.same("consumeMessage", "-t", "Looked", "-c", "0")
    assert "Please set the beginTimestamp before now!" in both.same("consumeMessage", "-t", "Looked", "-s", "9" * 13)
    both.same("consumeMessage", "-t", "Looked", "-s", "2001-01-01#00:00:00:000", "-e", "2001-01-02#00:00:00:000")


def test_consume_message_of_no_topic(both: Both) -> None:
    both.same("consumeMessage", "-t", "Nowhere", err="Can not find Message Queue for this topic, Nowhere")


def test_print_msg_by_queue_and_tag(both: Both, sent: object) -> None:
    words = ("-t", "Looked", "-a", "broker-a", "-i", "3", "-p", "true", "-f", "true")
    both.same("printMsgByQueue", *words, "-s", "TagA")
    both.same("printMsgByQueue", *words, "-s", "TagB")
    both.same("printMsgByQueue", *words, "-c", "GBK", "-d", "true")
