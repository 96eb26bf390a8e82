"""A broker killed on a full memory disk starts again on it, serves acknowledged messages, refuses sends with Apache's
codes, and takes messages again once there is space."""

import shutil

import pytest

from rocketd.remoting.wire.codes import ResponseCode
from tests.servers.damage import (
    RECOVERY_LIMIT,
    START_LIMIT,
    await_service_again,
    broker_on_small_disk,
    fill_up,
    send,
    serves,
    start_in,
)
from tests.servers.load import Sent, check_everything_is_there, is_dispatched


def full(seen):
    """Whether a page has no space."""
    return shutil.disk_usage(seen).free < 4096


def assert_refusals_are_apaches(sent):
    codes = {code for code, _ in sent.refused}
    assert codes
    assert codes <= {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}, sent.refused[:3]


@pytest.mark.long
def test_broker_killed_on_full_disk_starts_again(tmp_path):
    sent = Sent("p")
    with broker_on_small_disk(tmp_path) as (servers, space, broker):
        address = servers.broker_address
        while not sent.refused:
            send(address, sent, 500)
            assert len(sent.acknowledged) < 20_000, "more than fits on the disk was taken"
        broker.kill()
        fill_up(space.seen)
        assert full(space.seen)
        broker = start_in(space, servers)
        broker.wait_for("it serves", lambda: serves(address), START_LIMIT)
        sent.refused.clear()
        before = len(sent.acknowledged)

        def waits():
            return "become visible when there is space" in broker.log.read_text()

        broker.wait_for("all is visible or waits", lambda: waits() or is_dispatched(address), RECOVERY_LIMIT)
        if not waits():
            # Without space for the last entries, they have to wait; with space, nothing waits.
            assert check_everything_is_there(address, [sent]) == before
        send(address, sent, 50)
        assert_refusals_are_apaches(sent)
        assert len(sent.acknowledged) == before

        space.run("rm", str(servers.store / "ballast"))
        space.run("mount", "-o", "remount,size=64m", str(servers.store))
        await_service_again(broker, address, sent)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()
