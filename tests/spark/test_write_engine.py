"""The deliveries of writes against real brokers, without Spark: the tests make Spark's calls."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink import transactional
from rocketd.spark.sink.cluster_output import ClusterOutput
from rocketd.spark.sink.effectively_once.delivery import EffectivelyOnce
from rocketd.spark.sink.effectively_once.staging import Staging, mark_folder
from rocketd.spark.sink.plain import AtLeastOnce
from rocketd.spark.sink.transactional import Preparing
from rocketd.spark.wire import ClusterClient, Transactions, UnknownTopicError
from rocketd.spark.wire.transactions import Ended
from tests.spark.clusters import APACHE, BROKER, ROCKETD, await_condition
from tests.spark.kills import KILLS
from tests.spark.write_helpers import bodies, count_of, options_of, outgoing

RESTARTED = [ROCKETD] if KILLS <= 2 else [ROCKETD, APACHE]
"""Brokers to be restarted; Apache's takes ten seconds, so only if more kills than usual are wanted."""

ONCE = {"delivery": "effectively-once", "sinkId": "s"}


def in_turn(rows, queues=4, start=0):
    return {queue: [b"body %d" % n for n in range(rows) if (n + start) % queues == queue] for queue in range(queues)}


def stage(staging, batch, topic, parts, rows):
    mark_folder(str(Path(staging.folder).parent))
    return [
        staging.write(batch, f"{part}-0", outgoing(topic, range(part * rows, part * rows + rows)))
        for part in range(parts)
    ]


def kill_at(cluster, topic, count, command):
    """Run a program and kill it once the topic has so many messages; it must not end before."""
    running = subprocess.Popen(command)
    try:
        await_condition(
            f"{topic} has more than {count} messages",
            lambda: count_of(cluster, topic) > count or running.poll() is not None,
        )
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()


def test_at_least_once_sends_each_queue_its_rows_in_order(live_cluster):
    topic = live_cluster.create_topic(4)
    options = options_of(live_cluster, topic=topic, batchBytes="1k")
    plain = AtLeastOnce(options, ClusterOutput(options), 1)
    plain.deliver(outgoing(topic, range(300)))
    assert plain.sent == 300
    assert bodies(live_cluster, topic, 300) == in_turn(300, start=1)


def test_effectively_once_sends_a_batch_once(live_cluster, tmp_path):
    topic = live_cluster.create_topic(4)
    options = options_of(live_cluster, topic=topic, batchBytes="1k", stagingDir=str(tmp_path), **ONCE)
    staging = Staging(str(tmp_path / "s"))
    sink = EffectivelyOnce(options, "s", "q", lambda: ClusterOutput(options))
    sink.commit("7", stage(staging, "7", topic, 3, 100))
    sink.commit("7", stage(staging, "7", topic, 1, 5))
    assert bodies(live_cluster, topic, 300) == in_turn(300)
    assert not list(tmp_path.glob("**/*.arrow"))


def test_effectively_once_survives_kills_of_committing_process(live_cluster, tmp_path):
    topic = live_cluster.create_topic(3)
    rows = 400 * (1 + KILLS)
    staging = Staging(str(tmp_path / "s"))
    names = [one.name for one in stage(staging, "0", topic, 2, rows // 2)]
    program = Path(__file__).with_name("write_commit.py")
    command = [sys.executable, str(program), live_cluster.namesrv, topic, str(tmp_path), *names]
    for kill in range(KILLS):
        kill_at(live_cluster, topic, 400 * kill + 137, command)
    assert count_of(live_cluster, topic) < rows
    subprocess.run(command, check=True)
    assert bodies(live_cluster, topic, rows) == in_turn(rows, 3)


@pytest.mark.parametrize("kind", RESTARTED)
def test_effectively_once_waits_for_restarting_broker(request, kind, tmp_path):
    live_cluster = request.getfixturevalue(f"{kind}_cluster")
    topic = live_cluster.create_topic(2)
    options = options_of(
        live_cluster, topic=topic, batchBytes="1k", messagesPerSecond="400", stagingDir=str(tmp_path), **ONCE
    )
    staged = stage(Staging(str(tmp_path / "s")), "0", topic, 1, 1200)
    sink = EffectivelyOnce(options, "s", "q", lambda: ClusterOutput(options))
    errors = []

    def commit():
        try:
            sink.commit("0", staged)
        except Exception as error:
            errors.append(error)

    committing = Thread(target=commit)
    committing.start()
    await_condition("the batch is sent in part", lambda: count_of(live_cluster, topic) > 500 or errors)
    live_cluster.stop_broker()
    live_cluster.start_broker()
    committing.join()
    assert not errors
    assert bodies(live_cluster, topic, 1200) == in_turn(1200, 2)


def test_at_least_once_waits_for_restart_of_only_broker(rocketd_cluster):
    topic = rocketd_cluster.create_topic(2)
    options = options_of(rocketd_cluster, topic=topic, batchBytes="1k")
    rocketd_cluster.stop_broker()
    with pytest.raises(UnknownTopicError):  # it has told the name server that it goes, and took its topics along
        ClusterClient(replace(rocketd_cluster.options, patience=0.0)).write_queues(topic, fresh=True)
    asked = Event()
    errors = []

    class Asking(ClusterOutput):
        def queues(self, topic):
            asked.set()
            return super().queues(topic)

    def deliver():
        try:
            AtLeastOnce(options, Asking(options)).deliver(outgoing(topic, range(20)))
        except Exception as error:
            errors.append(error)

    sending = Thread(target=deliver)
    sending.start()
    assert asked.wait(60)
    rocketd_cluster.start_broker()
    sending.join()
    assert not errors
    assert bodies(rocketd_cluster, topic, 20) == in_turn(20, 2)


def test_half_messages_are_seen_when_they_are_committed(live_cluster):
    topic = live_cluster.create_topic(2)
    options = options_of(live_cluster, topic=topic, delivery="transactional")
    committed = Preparing(options, ClusterOutput(options), "w").deliver(outgoing(topic, range(60)))
    dropped = Preparing(options, ClusterOutput(options), "w").deliver(outgoing(topic, range(60, 90)))
    assert (len(committed), len(dropped)) == (60, 30)
    assert count_of(live_cluster, topic) == 0
    transactional.roll_back(options, [dropped])
    transactional.commit(options, [committed])
    found = bodies(live_cluster, topic, 60)
    assert {queue: sorted(some) for queue, some in found.items()} == {
        queue: sorted(some) for queue, some in in_turn(60, 2).items()
    }


def test_second_end_of_half_message_repeats_it(live_cluster):
    """Brokers show a message twice if its transaction is ended twice, so the transactional delivery never does that."""
    topic = live_cluster.create_topic(1)
    options = options_of(live_cluster, topic=topic, delivery="transactional")
    prepared = Preparing(options, ClusterOutput(options), "w").deliver(outgoing(topic, range(5)))
    pairs = list(prepared.halves(options.producer_group))
    transactions = Transactions(live_cluster.cluster, options.producer_group)
    for _ in range(2):
        assert [one.error for one in transactions.end(pairs, commit=True)] == [None] * 5
    assert Counter(bodies(live_cluster, topic, 10)[0]) == {b"body %d" % n: 2 for n in range(5)}
    # These distinguish a commit that was carried out from one that was not.
    shown = transactional._shown(ClusterOutput(options), live_cluster.queue(topic), 0)
    assert shown == {half.commit_log_offset for half in pairs}


def test_half_messages_of_lost_attempts_are_dropped(live_cluster):
    topic = live_cluster.create_topic(2)
    options = options_of(live_cluster, topic=topic, delivery="transactional", producerGroup="losers")
    won = Preparing(options, ClusterOutput(options), "w").deliver(outgoing(topic, range(20)))
    lost = Preparing(options, ClusterOutput(options), "w").deliver(outgoing(topic, range(20, 30)))
    others = Preparing(options, ClusterOutput(options), "x").deliver(outgoing(topic, range(30, 40)))
    last = max(lost.state_offsets[-1], others.state_offsets[-1])
    live_cluster.await_end(Queue(TRANS_HALF_TOPIC, BROKER, 0), last + 1)
    transactional.commit(options, [won])
    found = list(
        transactional._lost(options, ClusterOutput(options), BROKER, won.state_offsets[0], "w", set(won.log_offsets))
    )
    assert {half.commit_log_offset for half in found} >= {*lost.log_offsets}
    assert not {half.commit_log_offset for half in found} & {*won.log_offsets, *others.log_offsets}
    assert transactional.roll_back_lost(options, "w", [won]) >= 10
    transactional.commit(options, [others])
    assert sum(map(len, bodies(live_cluster, topic, 30).values())) == 30


def test_transaction_end_without_answer_is_looked_up(live_cluster, monkeypatch):
    topic = live_cluster.create_topic(2)
    options = options_of(live_cluster, topic=topic, delivery="transactional")
    prepared = Preparing(options, ClusterOutput(options), "w").deliver(outgoing(topic, range(40)))
    times = []

    class Unheard(Transactions):
        """The first time, every third end is carried out and every third is not, and of neither comes an answer."""

        def end(self, halves, *, commit):
            times.append(len(halves))
            if len(times) > 1:
                return super().end(halves, commit=commit)
            super().end([half for n, half in enumerate(halves) if n % 3 < 2], commit=commit)
            silence = ClusterError("no answer", retriable=True, doubtful=True)
            return [Ended(half, silence if n % 3 else None) for n, half in enumerate(halves)]

    monkeypatch.setattr(transactional, "Transactions", Unheard)
    transactional.commit(options, [prepared])
    assert times == [40, 13]
    found = bodies(live_cluster, topic, 40)
    assert sorted(found[0] + found[1]) == sorted(b"body %d" % n for n in range(40))
