"""kill -9 in the middle of a load: acknowledged messages are there, once, in order."""

import pytest

from tests.servers.load import Load, Sent, check_everything_is_there
from tests.support.server_processes import ServerProcesses

PRODUCERS = 4
MOMENTS = (150, 1_100, 4_000)
"""How many messages are acknowledged when the broker is killed: in its first file, after a few, after several."""


@pytest.mark.long
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_acknowledged_messages_survive(flush, tmp_path):
    servers = ServerProcesses(tmp_path, flushDiskType=flush)
    producers = [Sent(f"p{number}") for number in range(PRODUCERS)]
    try:
        stored = 0
        for moment in MOMENTS:
            broker = servers.start_broker(registered=False)
            if stored:
                assert check_everything_is_there(servers.broker_address, producers) == stored
            load = Load(servers.broker_address, producers)
            load.start()
            load.wait_for(moment)
            broker.kill()
            load.join()
            assert (servers.store / "abort").exists()
            acknowledged = sum(len(sent.acknowledged) for sent in producers)
            broker = servers.start_broker(registered=False)
            stored = check_everything_is_there(servers.broker_address, producers)
            assert stored >= acknowledged >= moment
            assert broker.stop() == 0
            assert not (servers.store / "abort").exists()
        assert [sent.refused for sent in producers] == [[]] * PRODUCERS
        assert "Traceback" not in "".join(process.log.read_text() for process in servers.processes)
    finally:
        servers.kill_all()
