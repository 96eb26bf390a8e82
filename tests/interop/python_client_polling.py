"""Scenarios of polled consumers and of administration that every face passes, each a function of a world.

``python -m tests.interop.python_client_polling KIND NAMESRV BROKER`` plays them all on the Twisted face, as
python_client_basics does.
"""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocketd.client import Message, MessageQueue, PullStatus, Sql
from rocketd.client.errors import TopicNotFoundError, UsageError
from tests.interop.python_client_basics import main
from tests.interop.python_client_faces import Got, Held, eventually
from tests.interop.python_client_world import QUEUES, World, fresh, numbered, send_all

QUICK = {"rebalance_interval": 1.0, "persist_interval": 0.5}


def lite(world: World, group: str, topics: Any = (), **options: Any) -> Held:
    """A polled consumer."""
    made = world.face.module.LitePullConsumer(
        group, world.servers.namesrv, topics=topics, **{"begin": "earliest", **QUICK, **options}
    )
    return Held(world.face, made)


def puller(world: World, group: str) -> Held:
    """Return a consumer that pulls from given queues and offsets."""
    return Held(world.face, world.face.module.PullConsumer(group, world.servers.namesrv))


def administration(world: World) -> Held:
    """An admin of the servers."""
    return Held(world.face, world.face.module.Admin(world.servers.namesrv))


def poll_all(consumer: Held, wanted: list[bytes]) -> list[Any]:
    """Poll until all of these bodies came; return the messages."""
    messages: list[Any] = []

    def complete() -> bool:
        messages.extend(consumer.poll(0.2))
        return set(wanted) <= {message.body for message in messages}

    eventually(f"{len(wanted)} messages are polled", complete)
    return messages


def sent(world: World, bodies: list[bytes], queues: int = QUEUES) -> str:
    """A topic with these messages, in turn in each of its queues."""
    topic = world.topic(queues)
    with world.producer() as producer:
        send_all(producer, topic, bodies)
    world.await_dispatch()
    return topic


# ---------------------------------------------------------------- polled


def polled_shares_follow_the_group(world: World) -> None:
    group, before, after = world.group(), numbered("before", 24), numbered("after", 24)
    topic = sent(world, before)
    with lite(world, group, topic) as first:
        messages = poll_all(first, before)
        assert sorted(message.body for message in messages) == sorted(before)
        for queue_id in range(QUEUES):
            assert [m.queue_offset for m in messages if m.queue.queue_id == queue_id] == list(range(6))
        with lite(world, group, topic) as second:
            eventually("they share", lambda: (len(first.queues()), len(second.queues())) == (2, 2))
            assert not set(first.queues()) & set(second.queues())
            with world.producer() as producer:
                send_all(producer, topic, after)
            of_first = [
                body for body in after if int(body.split(b"-")[1]) % QUEUES in {q.queue_id for q in first.queues()}
            ]
            poll_all(first, of_first)
            poll_all(second, sorted(set(after) - set(of_first)))
        eventually("the first has all", lambda: len(first.queues()) == QUEUES)
    with lite(world, group, topic) as third:
        with world.producer() as producer:
            producer.send(Message(topic, b"last"))
        assert [message.body for message in poll_all(third, [b"last"])] == [b"last"]


def manual_commit_stores_offsets(world: World) -> None:
    group, bodies = world.group(), numbered("kept", 4)
    topic = sent(world, bodies, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    with lite(world, group, topic, auto_commit=False) as consumer:
        poll_all(consumer, bodies)
        consumer.poll(0)
    with lite(world, group, topic, auto_commit=False) as consumer:
        assert len(poll_all(consumer, bodies)) == len(bodies)
        consumer.commit()
        assert consumer.committed(queue) == 4
        consumer.commit({queue: 3})
    with lite(world, group, topic) as consumer:
        assert [message.body for message in poll_all(consumer, bodies[3:])] == bodies[3:]


def failing_block_leaves_its_last_messages(world: World) -> None:
    group, bodies = world.group(), numbered("again", 3)
    topic = sent(world, bodies, queues=1)
    for fails in (True, False):
        consumer = lite(world, group, topic)
        consumer.__enter__()
        assert len(poll_all(consumer, bodies)) == len(bodies)
        consumer.client._block_failed = fails
        consumer.__exit__()
    with puller(world, group) as other:
        assert other.fetch_consume_offset(MessageQueue(topic, "broker-a", 0)) == 3


def assigned_queues_and_seeking(world: World) -> None:
    bodies = numbered("sought", 12)
    topic = sent(world, bodies, queues=2)
    first, second = (MessageQueue(topic, "broker-a", queue_id) for queue_id in range(2))
    with lite(world, world.group()) as consumer:
        assert consumer.topic_queues(topic) == [first, second]
        consumer.assign([first])
        assert consumer.queues() == [first]
        poll_all(consumer, bodies[::2])
        consumer.seek(first, 4)
        assert [message.queue_offset for message in poll_all(consumer, bodies[8::2])] == [4, 5]
        consumer.seek_to_begin(first)
        assert len(poll_all(consumer, bodies[::2])) == 6
        consumer.seek_to_end(first)
        assert consumer.poll(0.3) == []
        for wrong, offset in ((first, 7), (second, 0)):
            with pytest.raises(UsageError):
                consumer.seek(wrong, offset)
        assert consumer.offset_for_timestamp(second, datetime(2020, 1, 1, tzinfo=UTC)) == 0
        consumer.assign([second])
        assert sorted(message.body for message in poll_all(consumer, bodies[1::2])) == sorted(bodies[1::2])


def subscription_selects_messages(world: World) -> None:
    topic = world.topic()
    with world.producer() as producer:
        for number in range(12):
            producer.send(Message(topic, str(number).encode(), tags="AB"[number % 2], properties={"n": str(number)}))
    wanted = {"B": [b"%d" % number for number in range(1, 12, 2)], Sql("n > 8"): [b"9", b"10", b"11"]}
    for expression, bodies in wanted.items():
        with lite(world, world.group(), {topic: expression}) as consumer:
            assert sorted(message.body for message in poll_all(consumer, bodies)) == sorted(bodies)


# ---------------------------------------------------------------- pulled


def pulled_from_a_share(world: World) -> None:
    """Each member pulls from its share, as MQPullConsumerScheduleService of Apache's does."""
    group, bodies = world.group(), numbered("share", 8)
    topic = sent(world, bodies)

    def pulled(consumer: Held) -> list[bytes]:
        shares = [consumer.pull(queue, None, 0).messages for queue in consumer.fetch_queues_in_balance(topic)]
        return [message.body for messages in shares for message in messages]

    with puller(world, group) as first:
        eventually("it has all", lambda: sorted(pulled(first)) == bodies)
        with puller(world, group) as second:
            sizes = [QUEUES // 2] * 2
            eventually("they share", lambda: [len(c.fetch_queues_in_balance(topic)) for c in (second, first)] == sizes)
            assert sorted(pulled(first) + pulled(second)) == bodies
        eventually("the first has all", lambda: len(first.fetch_queues_in_balance(topic)) == QUEUES)


def pulled_from_given_offsets(world: World) -> None:
    group, got = world.group(), Got()
    topic = world.topic(1)
    queue = MessageQueue(topic, "broker-a", 0)
    with world.producer() as producer, puller(world, group) as consumer:
        assert consumer.fetch_subscribe_queues(topic) == [queue]
        for number in range(5):
            producer.send(Message(topic, str(number).encode(), tags="AB"[number % 2]))
        eventually("the last can be read", lambda: consumer.pull(queue, None, 4).status is PullStatus.FOUND)
        result = consumer.pull(queue, None, 1, 2)
        assert (result.status, result.next_begin_offset) == (PullStatus.FOUND, 3)
        assert [message.body for message in result.messages] == [b"1", b"2"]
        assert (result.min_offset, result.max_offset) == (0, 5)
        assert [message.body for message in consumer.pull(queue, "B", 0).messages] == [b"1", b"3"]
        nothing = consumer.pull(queue, "C", 0)
        assert (nothing.status, nothing.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 5)
        assert consumer.pull(queue, None, 5).status is PullStatus.NO_NEW_MSG
        beyond = consumer.pull(queue, None, 100)
        assert (beyond.status, beyond.messages) == (PullStatus.OFFSET_ILLEGAL, [])
        producer.send(Message(topic, b"5"))
        assert [m.body for m in consumer.pull_block_if_not_found(queue, None, 5).messages] == [b"5"]

        assert consumer.fetch_consume_offset(queue) == 0  # as brokers answer if the whole queue is young
        consumer.update_consume_offset(queue, 6)
        consumer.persist_consume_offsets()
        assert consumer.fetch_consume_offset(queue, from_store=True) == 6
        consumer.send_message_back(result.messages[0], 1)
        with world.consumer(group, topic, got):
            got.wait_bodies([b"1"])
    (message,) = got.messages
    assert (message.topic, message.reconsume_times, message.msg_id) == (topic, 1, result.messages[0].msg_id)


# ---------------------------------------------------------------- administered


def topics_queues_and_messages(world: World) -> None:
    topic = fresh(f"Admin-{world.face.name}")
    with administration(world) as admin, world.producer() as producer:
        with pytest.raises(TopicNotFoundError):
            admin.fetch_subscribe_queues(topic)
        admin.create_topic(topic, queues=2)
        world.await_topic(topic)
        queues = admin.fetch_subscribe_queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1]
        assert admin.fetch_publish_queues(topic) == queues
        assert topic in admin.topics()
        assert [broker.broker_addrs[0] for broker in admin.brokers()] == [world.servers.broker]
        results = [producer.send(Message(topic, b"%d" % n, keys=[f"k{n}", "k"]), queue=queues[0]) for n in range(3)]
        eventually("the last can be read", lambda: admin.max_offset(queues[0]) == 3)
        assert (admin.min_offset(queues[0]), admin.max_offset(queues[1])) == (0, 0)
        earliest = admin.earliest_message_time(queues[0])
        assert abs((datetime.now(UTC) - earliest).total_seconds()) < 300
        assert admin.earliest_message_time(queues[1]) is None
        # Of several messages of one millisecond Apache's broker may find any.
        assert admin.search_offset(queues[0], earliest - timedelta(seconds=1)) == 0
        for message_id in (results[1].offset_msg_id, results[1].msg_id):
            eventually(
                "the message is indexed", lambda wanted=message_id: admin.view_message(topic, wanted) is not None
            )
            message = admin.view_message(topic, message_id)
            assert (message.body, message.queue, message.msg_id) == (b"1", queues[0], results[1].msg_id)
        # Brokers index the keys of a message in their order.
        eventually("all are indexed", lambda: len(admin.query_message(topic, "k")) == 3)
        assert [message.body for message in admin.query_message(topic, "k2")] == [b"2"]
        assert len(admin.query_message(topic, "k", 2)) == 2
        assert admin.query_message(topic, "k", end=datetime(2020, 1, 1, tzinfo=UTC)) == []
        assert admin.query_message_by_unique_key(topic, "0" * 32) is None
        admin.delete_topic(topic)
        eventually("it is gone", lambda: topic not in admin.topics())


def groups_and_their_offsets(world: World) -> None:
    group, bodies, got = world.group(), numbered("reset", 6), Got()
    topic = sent(world, bodies, queues=2)
    queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(2)]
    with administration(world) as admin:
        admin.create_group(group, retry_max_times=3)
        eventually("the last can be read", lambda: [admin.max_offset(queue) for queue in queues] == [3, 3])
        assert admin.reset_offsets(group, topic, "latest") == dict.fromkeys(queues, 3)
        assert admin.reset_offsets(group, topic, "earliest") == dict.fromkeys(queues, 0)
        with world.consumer(group, topic, got, begin="latest"):
            got.wait_bodies(bodies)
            assert admin.reset_offsets(group, topic, datetime(2020, 1, 1, tzinfo=UTC)) == dict.fromkeys(queues, 0)
            got.wait("all come again", lambda: len(got.messages) >= 2 * len(bodies))
        with puller(world, group) as stored:
            assert [stored.fetch_consume_offset(queue) for queue in queues] == [3, 3]
        admin.delete_group(group, remove_offsets=True)
        with puller(world, group) as stored:
            # A broker that knows no offset says 0 where all of the queue is young.
            assert [stored.fetch_consume_offset(queue) for queue in queues] == [0, 0]


SCENARIOS = [
    polled_shares_follow_the_group,
    manual_commit_stores_offsets,
    failing_block_leaves_its_last_messages,
    assigned_queues_and_seeking,
    subscription_selects_messages,
    pulled_from_given_offsets,
    pulled_from_a_share,
    topics_queues_and_messages,
    groups_and_their_offsets,
]

if __name__ == "__main__":
    main(*sys.argv[1:], scenarios=SCENARIOS)
