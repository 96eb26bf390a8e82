"""A log in several directories goes to and fro between Apache's broker and rocketd's: each opens the files of the other."""

import pytest

from tests.interop.store_journey import StoreJourney
from tests.support.store_brokers import APACHE, IPV4, ROCKETD, SMALL_FILES, StoreBrokers

FILE = int(SMALL_FILES["mappedFileSizeCommitLog"])


class LogDirectories:
    """The settings of both brokers, and the directories of log files."""

    def __init__(self, store):
        self._store = store

    def settings(self, *writable, read_only=()):
        settings = {"storePathCommitLog": self._joined(writable)}
        if read_only:
            settings["readOnlyCommitLogStorePaths"] = self._joined(read_only)
        return settings

    def files(self):
        """Directory of each log file, by its number."""
        return {
            int(file.name) // FILE: directory.name
            for directory in self._store.glob("commitlog*")
            for file in directory.iterdir()
        }

    def assert_in_turn(self, numbers, *names):
        """Check the places of these files by both brokers' rule: the directories sorted, one after the other."""
        files = self.files()
        assert {number: files[number] for number in numbers} == {
            number: sorted(names)[number % len(names)] for number in numbers
        }

    def _joined(self, names):
        return ",".join(f"{self._store}/{name}" for name in names)


@pytest.fixture
def journey(namesrv, tmp_path_factory):
    brokers = StoreBrokers(tmp_path_factory.mktemp("brokers"), namesrv)
    yield StoreJourney(brokers, tmp_path_factory.mktemp)
    brokers.close()


def test_log_in_several_directories_changes_hands_and_returns(journey):
    logs = LogDirectories(journey.store)
    both = logs.settings("commitlog-2", "commitlog-1")
    journey.begin(APACHE, IPV4, **both)
    journey.fill()
    journey.stop()
    by_apache = logs.files().keys()
    assert len(by_apache) > 1
    logs.assert_in_turn(by_apache, "commitlog-1", "commitlog-2")

    journey.begin(ROCKETD, IPV4, **both)
    journey.fill()
    journey.stop()
    by_both = logs.files().keys()
    assert len(by_both) > len(by_apache)
    logs.assert_in_turn(by_both, "commitlog-1", "commitlog-2")

    # One directory is given up, another one comes: nothing new is made in the first.
    moved = logs.settings("commitlog-2", "commitlog-3", "commitlog-1", read_only=["commitlog-1"])
    journey.begin(APACHE, IPV4, **moved)
    journey.fill()
    journey.kill()
    journey.begin(ROCKETD, IPV4, **moved)
    journey.fill()
    journey.kill()
    journey.begin(APACHE, IPV4, **moved)
    journey.look_up()
    journey.stop()
    logs.assert_in_turn(by_both, "commitlog-1", "commitlog-2")
    logs.assert_in_turn(logs.files().keys() - by_both, "commitlog-2", "commitlog-3")
    assert len(logs.files()) > len(by_both) + 1
