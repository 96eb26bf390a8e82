"""A store goes to and fro between Apache's broker and rocketd's: each opens the files of the other, and continues."""

import shutil

import pytest

from tests.interop.store_checks import same_entries
from tests.interop.store_journey import StoreJourney
from tests.support.store_brokers import APACHE, IPV4, IPV6, ROCKETD, SLOTS, StoreBrokers
from tests.support.store_directory import queues_of, read_index, read_log, read_queues
from tests.support.store_wire import await_condition, max_offset

QUICK_CHECKS = {"transactionCheckInterval": "2000", "transactionTimeOut": "1000"}


@pytest.fixture
def journey(namesrv, tmp_path_factory):
    brokers = StoreBrokers(tmp_path_factory.mktemp("brokers"), namesrv)
    yield StoreJourney(brokers, tmp_path_factory.mktemp)
    brokers.close()


def write(journey):
    journey.fill()
    journey.consume()
    journey.transact()
    journey.postpone()  # at last, to be left to the next broker however slow the machine is


def leave(journey, kind, end):
    getattr(journey, end)()
    assert journey.undelivered(), "the broker took so long that no delayed message was left to the next"
    if (kind, end) == (ROCKETD, "stop"):
        journey.append_ipv6()


def check(journey):
    journey.look_up()
    journey.await_delivered("delay-1", "delay-2")


@pytest.mark.parametrize(
    ("first", "second", "host"),
    [(APACHE, ROCKETD, IPV6), (ROCKETD, APACHE, IPV4)],
    ids=["apache-first", "rocketd-first"],
)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_store_changes_hands_and_returns(journey, first, second, host, end):
    journey.begin(first, host)
    write(journey)
    leave(journey, first, end)

    journey.begin(second, IPV4 if host == IPV6 else IPV6)
    check(journey)
    write(journey)
    leave(journey, second, end)

    journey.begin(first, host, **QUICK_CHECKS)
    check(journey)
    journey.decide()
    journey.fill()
    journey.consume()
    journey.stop()


def test_nothing_acknowledged_is_lost_by_kills_under_load(journey):
    ends = (ROCKETD, "kill"), (APACHE, "kill"), (ROCKETD, "stop"), (APACHE, "kill"), (ROCKETD, "stop")
    for kind, end in ends:
        journey.begin(kind, IPV4)
        if end == "kill":
            journey.kill_under_load(acknowledged=1000)
        else:
            journey.stop()


def test_both_rebuild_queues_and_index_to_the_byte(journey, namesrv, tmp_path):
    quick = {"messageDelayLevel": "1s 2s"}
    journey.delays_ms = [1_000, 2_000]
    journey.begin(APACHE, IPV6, **quick)
    journey.fill()
    journey.transact()
    journey.postpone()
    journey.await_delivered("delay-2")
    journey.stop()
    journey.begin(ROCKETD, IPV4, **quick)
    journey.fill()
    journey.postpone()
    journey.await_delivered("delay-2")
    journey.stop()
    journey.append_ipv6()

    queues, index = read_queues(journey.store), read_index(journey.store, SLOTS)
    assert len(index) > 3
    rebuilt = {kind: rebuild(kind, journey.store, tmp_path / kind, namesrv, quick) for kind in (APACHE, ROCKETD)}
    assert rebuilt[APACHE] == rebuilt[ROCKETD]
    for kind, (queues_again, index_again) in rebuilt.items():
        assert [file.used for file in index_again] == [file.used for file in index], kind
        assert queues_again.keys() == queues.keys(), kind
        for queue, entries in queues.items():
            assert same_entries(entries, queues_again[queue], queue[0]), (kind, queue)


def rebuild(kind, store, directory, namesrv, properties):
    """Queues and index as a broker of this kind makes them of a copy of the log alone."""
    brokers = StoreBrokers(directory, namesrv)
    shutil.copytree(store, brokers.store, ignore=shutil.ignore_patterns("consumequeue", "index"))
    lengths = {queue: len(records) for queue, records in queues_of(read_log(store)).items()}

    def rebuilt():
        return all(max_offset(brokers.address, *queue) == length for queue, length in lengths.items())

    try:
        brokers.start(kind, **properties)
        await_condition("queues are rebuilt", rebuilt)
        brokers.stop()
    finally:
        brokers.close()
    return read_queues(brokers.store), read_index(brokers.store, SLOTS)
