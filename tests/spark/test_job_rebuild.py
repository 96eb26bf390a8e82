"""`rocketd spark rebuild` with a real Spark."""

import os
import shutil
from pathlib import Path

import pytest

from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.rebuild.job import Rebuilding
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules, delays_of
from rocketd.spark.jobs.stopped_store.files import IndexView
from rocketd.spark.jobs.verify.job import Verification
from rocketd.spark.wire.message import RawMessage
from rocketd.spark.wire.send import Sender
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.offline.stopped_store import StoppedStore
from tests.spark.running import run_job
from tests.support.file_hashes import files
from tests.support.stores import messages, write_store


def test_rebuild_equals_files_of_the_broker(spark, tmp_path):
    root, target = str(tmp_path / "store"), str(tmp_path / "made")
    write_store(root, 3000, variants=True, index=True)
    report = run_job(spark, "rebuild", "--store", root, "--to", target)
    assert (report.status, report.facts["entries"]) == (0, 3000)
    assert files(target, "consumequeue") == files(root, "consumequeue")
    assert list(files(target, "index").values()) == list(files(root, "index").values())
    with pytest.raises(OptionError, match="is not empty"):
        run_job(spark, "rebuild", "--store", root, "--to", target)


def test_rebuild_in_place(spark, tmp_path):
    root = str(tmp_path)
    write_store(root, 3000, index=True)
    before = files(root, "consumequeue")
    shutil.rmtree(os.path.join(root, "consumequeue", "orders", "1"))
    report = run_job(spark, "rebuild", "--store", root, "--in-place")
    assert report.status == 0
    assert files(root, "consumequeue") == before
    # The store continues at its former end.
    written = write_store(root, messages(4, first=3000), index=True)
    assert [result.queue_offset for result in written.results] == [750] * 4
    assert run_job(spark, "verify", "--store", root).status == 0


def test_store_of_a_broker_is_sound_and_rebuilt(live_cluster, tmp_path):
    """Apache's broker, killed, and ours: delayed messages, tags, keys, a topic that another one lies between."""
    topic = live_cluster.create_topic(queues=2)
    for number in range(6):
        texts = [b"body %d" % (number * 10 + one) for one in range(10)]
        rows = [RawMessage(topic, text, tags=f"Tag{number % 3}", keys=f"k{number} all") for text in texts]
        live_cluster.send(topic, rows, queue_id=number % 2)
    later = live_cluster.catalog.bounds(live_cluster.queue("SCHEDULE_TOPIC_XXXX", 17))[1]
    Sender(live_cluster.cluster).send(live_cluster.queue(topic), RawMessage(topic, b"later", delay_level=18))
    live_cluster.await_end(live_cluster.queue("SCHEDULE_TOPIC_XXXX", 17), later + 1)
    live_cluster.stop_broker()
    try:
        root = str(live_cluster.directory / "store")
        rules = DispatchRules(delays_of(MessageStoreConfig(store_path_root_dir="").message_delay_level))
        report = Verification(StoppedStore(root), rules, JobProgressBar(quiet=True)).run(
            lambda items, do: map(do, items)
        )
        assert report.problems == []
        assert report.facts["records"] >= 61
        rebuilding = Rebuilding(StoppedStore(root), rules, str(tmp_path), JobProgressBar(quiet=True))
        report = rebuilding.finish(rebuilding.run(lambda items, do: map(do, items)))
        assert report.problems == []
        assert files(tmp_path, "consumequeue") == files(root, "consumequeue")
        (old,), (new,) = (
            [IndexView(str(path), rebuilding.shape) for path in Path(at, "index").iterdir()] for at in (root, tmp_path)
        )
        # A broker that was killed, in some test before, has indexed its last messages twice.
        assert list(dict.fromkeys(one[:3] for one in old.entries.tolist())) == [one[:3] for one in new.entries.tolist()]
        if len(old.entries) == len(new.entries):
            assert bytes(old.data[: rebuilding.shape.entries_at]) == bytes(new.data[: rebuilding.shape.entries_at])
    finally:
        live_cluster.start_broker()
        live_cluster.await_end(live_cluster.queue(topic), 30)
