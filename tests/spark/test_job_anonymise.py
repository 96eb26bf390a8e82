"""``rocketd spark anonymise``: fields hashed or dropped, from a store and an archive, into an archive and a topic."""

import hashlib
import hmac

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketd.spark.archive.reader import archive_files
from rocketd.spark.errors import OptionError, SparkError
from tests.spark.running import run_job
from tests.support.stores import message, write_store

SECRET = b"a secret of thirty-two bytes or so"


def token(text):
    return hmac.new(SECRET, text.encode(), hashlib.sha256).hexdigest()[:32]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    rows = [
        message(b'{"mail": "a@b", "n": 1}', keys="ann order-1", properties={"phone": "123", "kind": "x"}),
        message(b'{"n": 2}', keys="bob", properties={"kind": "y"}),
    ]
    write_store(tmp_path / "store", rows)
    return tmp_path


FIELDS = ("--hash", "keys", "--hash", "body.mail", "--drop", "properties.phone")
TOUCHED = {"keys": 2, "body.mail": 1, "properties.phone": 1}


def test_anonymise_from_store_and_archive_into_archive(spark, place):
    words = (*FIELDS, "--secret", place / "secret")
    report = run_job(
        spark, "anonymise", "--store", place / "store", "--topic", "orders", *words, "--to-archive", place / "a"
    )
    assert report.facts["messages"] == 2
    assert report.facts["touched"] == TOUCHED
    table = pa.concat_tables([pq.read_table(path) for path in archive_files(str(place / "a"))]).sort_by("queue_offset")
    assert "raw" not in table.schema.names
    assert table["keys"].to_pylist() == [f"{token('ann')} {token('order-1')}", token("bob")]
    assert table["body"].to_pylist() == [f'{{"mail":"{token("a@b")}","n":1}}'.encode(), b'{"n": 2}']
    assert [dict(row) for row in table["properties"].to_pylist()] == [
        {"kind": "x", "KEYS": f"{token('ann')} {token('order-1')}"},
        {"kind": "y", "KEYS": token("bob")},
    ]
    run_job(spark, "archive", "--store", place / "store", "--to", place / "raw")
    again = run_job(spark, "anonymise", "--archive", place / "raw", *words, "--to-archive", place / "b")
    assert again.facts["touched"] == TOUCHED


def test_anonymise_into_topic(spark, place, rocketd_cluster):
    topic = rocketd_cluster.create_topic(queues=1)
    target = ("--to-topic", topic, "--to-namesrv", rocketd_cluster.namesrv, "--state", place / "state")
    words = ("--store", place / "store", "--topic", "orders", *FIELDS, "--secret", place / "secret", *target)
    assert run_job(spark, "anonymise", *words).facts["touched"] == TOUCHED
    read = spark.read.format("rocketd").option("namesrv", rocketd_cluster.namesrv).option("subscribe", topic)
    rows = sorted(
        read.schema("keys string, properties map<string,string>").load().collect(), key=lambda row: len(row["keys"])
    )
    assert [row["keys"] for row in rows] == [token("bob"), f"{token('ann')} {token('order-1')}"]
    assert all("phone" not in row["properties"] for row in rows)


def test_anonymise_with_wrong_options_raises(spark, place):
    source = ("--store", place / "store", "--topic", "orders", "--to-archive", place / "a")
    with pytest.raises(OptionError, match="no field is named"):
        run_job(spark, "anonymise", *source, "--secret", place / "secret")
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        run_job(spark, "anonymise", *source, "--hash", "keys", "--secret", place / "none")
    (place / "weak").write_bytes(b"abc")
    with pytest.raises(OptionError, match="the secret has 3 bytes"):
        run_job(spark, "anonymise", *source, "--hash", "keys", "--secret", place / "weak")
    write_store(place / "store", [message(b"no json")])
    with pytest.raises(SparkError, match="a body is not JSON"):
        run_job(spark, "anonymise", *source, "--hash", "body.mail", "--secret", place / "secret")
