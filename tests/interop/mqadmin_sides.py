"""Two clusters in the same state, Apache's and rocketd's, and Apache's mqadmin run against both.

Each has a JVM beside it in which mqadmin runs, command after command, and with it the producers and consumers that the
commands report. Every action is done to both, in the same order: so even the offsets in their logs are the same.
"""

import difflib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.mqadmin_driver import Driver
from tests.interop.mqadmin_text import Names, fields, without_stack_frames
from tests.support import apache, twistd_servers
from tests.support.broker_settings import SMALL_FILES
from tests.support.patience import PATIENT
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerProcess
from tests.support.store_wire import await_dispatched

CLUSTER = "DefaultCluster"
APACHE, ROCKETD = "apache", "rocketd"

# Small, so that both start fast, and alike, so that places in the logs are.
PROPERTIES = {
    **PATIENT,
    **SMALL_FILES,
    "traceTopicEnable": "true",
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "brokerIP2": "127.0.0.1",
    # The first look for half messages makes their topic, at both, but not in the same moment.
    "transactionCheckInterval": "3600000",
}
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Word = str | Mapping[str, str]
"""A word of a command line; a mapping if it differs between the kinds of side."""


class Accounts(NamedTuple):
    """The text of a broker's file of accounts, and of the file with mqadmin's own."""

    file: str
    credentials: str


class Side:
    """One cluster: a name server, a broker, a driver. ``names`` gives its output the common names."""

    def __init__(self, kind: str, directory: Path, accounts: Accounts | None = None) -> None:
        self.kind = kind
        self.directory = directory
        (directory / "home" / "conf").mkdir(parents=True)
        namesrv_port, self._port = free_port(), free_broker_port()
        self.namesrv, self.broker = f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{self._port}"
        # Apache's servers are given it in the place that the environment has for it.
        home = {"rocketmqHome": f"{directory}/home"}
        properties = {**PROPERTIES, **home, "storePathCommitLog": f"{directory}/store/commitlog"}
        if accounts is not None:
            (directory / "home" / "conf" / "plain_acl.yml").write_text(accounts.file)
            properties["aclEnable"] = "true"
        own = {
            str(directory): "DIRECTORY",
            # Where rocketd's name server is started, beside Apache's.
            f"{directory}/namesrv/namesrv.conf": "DIRECTORY/namesrv.conf",
            self.namesrv: "NAMESRV",
            self.broker: "BROKER",
            f"127.0.0.1:{self._port + 1}": "HA-ADDRESS",
            str(namesrv_port): "NAMESRV-PORT",
            str(self._port): "BROKER-PORT",
            str(self._port + 1): "HA-PORT",
        }
        self.names = Names(own, self.broker)
        self._properties = properties
        self._is_guarded = accounts is not None
        self._servers: list[ServerProcess] = []
        self.driver: Driver
        self.slave = ""
        try:
            if kind == APACHE:
                self._servers.append(apache.start_namesrv(directory, namesrv_port, _JVM))
                self._servers.append(apache.start_broker(directory, self._port, self.namesrv, properties, _JVM))
            else:
                self._servers.append(twistd_servers.start_namesrv(directory, namesrv_port, home))
                self._servers.append(twistd_servers.start_broker(directory, self._port, self.namesrv, properties))
            credentials = "" if accounts is None else accounts.credentials
            self.driver = Driver(directory / "mqadmin", self.namesrv, credentials)
        except BaseException:
            for server in self._servers:
                server.kill()
            raise

    def start_slave(self) -> None:
        """Start a slave of the broker; the common name of its address is SLAVE."""
        port, directory = free_broker_port(), self.directory / "slave"
        directory.mkdir()
        self.slave = f"127.0.0.1:{port}"
        self.names.add({self.slave: "SLAVE", str(port): "SLAVE-PORT", str(port + 1): "SLAVE-HA-PORT"})
        properties = {
            **self._properties,
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "rocketmqHome": f"{directory}/home",
            "storePathCommitLog": f"{directory}/store/commitlog",
        }
        if self.kind == APACHE:
            self._servers.append(apache.start_broker(directory, port, self.namesrv, properties, _JVM))
        else:
            self._servers.append(twistd_servers.start_broker(directory, port, self.namesrv, properties))

    def await_dispatch(self) -> None:
        """Return once all that the broker has stored can be read and queried: it answers sends before.

        At a broker with accounts return at once: it does not tell just anybody.
        """
        if not self._is_guarded:
            await_dispatched(self.broker)

    def mqadmin(self, *words: Word, alone: bool = False, **how: Any) -> dict[str, str]:
        """Return the output of a command, "out" and "err", with the common names.

        ``NAMESRV``, ``BROKER``, ``SLAVE`` and ``DIRECTORY`` among the words stand for this side's. The address of the
        name server is added unless the words are to stand ``alone``.
        """
        filled = [self._filled(word if isinstance(word, str) else word[self.kind]) for word in words]
        answer = self.driver.ask("mqadmin", words=filled if alone else [*filled, "-n", self.namesrv], **how)
        return {
            "out": self.names.given_to(answer["out"]),
            "err": self.names.given_to(without_stack_frames(answer["err"])),
        }

    def _filled(self, word: str) -> str:
        return {"NAMESRV": self.namesrv, "BROKER": self.broker, "SLAVE": self.slave}.get(
            word, word.replace("DIRECTORY", str(self.directory))
        )

    def stop(self) -> None:
        """End all; AssertionError when a server of rocketd's logged a traceback."""
        self.driver.stop()
        for server in reversed(self._servers):
            if self.kind == APACHE:
                server.kill()  # faster, and nothing is to be learned from its end
            else:
                server.stop()
                twistd_servers.check_log(server)


class Both:
    """Both sides. Every action here is done to both."""

    def __init__(self, directory: Path, accounts: Accounts | None = None) -> None:
        """Start all in ``directory``; with ``accounts`` the brokers serve only these."""
        self._pool = ThreadPoolExecutor(2)
        apache.fetch_jars()
        starting = [self._pool.submit(Side, kind, directory / kind, accounts) for kind in (APACHE, ROCKETD)]
        try:
            self.apache, self.rocketd = (side.result() for side in starting)
        except BaseException:
            for side in starting:
                if side.exception() is None:
                    side.result().stop()
            raise

    def each(self, action: Callable[[Side], Any]) -> tuple[Any, Any]:
        """Do it to both at once; return the results of Apache's and of rocketd's."""
        of_apache, of_rocketd = self._pool.map(action, (self.apache, self.rocketd))
        return of_apache, of_rocketd

    def await_dispatch(self) -> None:
        """Return once all messages stored in both, from any sender, can be read and queried."""
        self.each(Side.await_dispatch)

    def ask(self, do: str, **request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Have both drivers do something."""
        return self.each(lambda side: side.driver.ask(do, **request))

    def send(self, group: str, messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
        """Have both sent the same messages, which can be read then; their ids, "id" and "offsetId", at each."""
        first, second = self.ask("send", group=group, messages=[{"properties": {}, **message} for message in messages])
        self.await_dispatch()
        return first["sent"], second["sent"]

    def send_traced(self, topic: str) -> dict[str, str]:
        """Have mqadmin send a message with a trace; its unique id, for each kind of side.

        The trace may never come: mqadmin leaves without it when its sending takes more than a moment.
        """
        words = ("sendMessage", "-t", topic, "-p", "x", "-k", "traced", "-m", "true", "-n")
        outs = self.each(lambda side: side.driver.ask("mqadmin", words=[*words, side.namesrv])["out"])
        return {side.kind: out.split()[-1] for side, out in zip((self.apache, self.rocketd), outs, strict=True)}

    def level(self) -> None:
        """Bring both logs to the same end again, after actions with records of different lengths in both."""

        def end(side: Side) -> int:
            found = re.search(r"commitLogMaxOffset *: (\d+)", side.mqadmin("brokerStatus", "-b", "BROKER")["out"])
            assert found is not None
            return int(found[1])

        self.same("updateTopic", "-b", "BROKER", "-t", "Fillers", "-r", "1", "-w", "1")
        deadline = time.monotonic() + 120.0  # earlier actions may still write
        while True:
            ends = self.each(end)
            if ends[0] == ends[1]:
                return
            assert time.monotonic() < deadline, ends
            sides = zip((self.apache, self.rocketd), ends, strict=True)
            longer = {side.kind: max(ends) - own for side, own in sides}

            def fill_up(side: Side, longer: Mapping[str, int] = longer) -> None:
                filler = {**message("Fillers", 0), "body": "x" * (1 + longer[side.kind])}
                side.driver.ask("send", group=PRODUCERS, messages=[filler])

            self.each(fill_up)

    def same(
        self, *words: Word, err: str = "", in_any_order: bool = False, change: Callable[[str], str] = str, **how: Any
    ) -> str:
        """Run a command against both; AssertionError unless every printed field is the same.

        Returns the changed output of Apache's. ``err`` must be in standard error; without it standard error must be
        empty. ``in_any_order`` is for commands that print a hash set or map: the order of its lines depends on the order
        of insertion. ``change`` is applied to both outputs first, to hide further expected differences; the test says
        why. ``how`` goes to the driver.
        """
        self.await_dispatch()
        printed = self.each(lambda side: side.mqadmin(*words, **how))
        for stream in ("out", "err"):
            assert_same_fields(
                f"mqadmin {' '.join(map(str, words))}: standard {stream}",
                *(change(side[stream]) for side in printed),
                in_any_order=in_any_order,
            )
        complaint = printed[0]["err"]
        assert err in complaint if err else not complaint, complaint
        return change(printed[0]["out"])

    def become_same(self, *words: Word, wanted: str = "", limit: float = 120.0, **given: Any) -> str:
        """As ``same``, tried again for ``limit`` seconds until the output matches the regular expression ``wanted``, too.

        It is for figures that each broker counts at its own moments.
        """
        deadline = time.monotonic() + limit
        while True:
            try:
                printed = self.same(*words, **given)
                assert re.search(wanted, printed), printed
                return printed
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(1.0)

    def stop(self) -> None:
        self.each(lambda side: side.stop())
        self._pool.shutdown()


def assert_same_fields(what: str, of_apache: str, of_rocketd: str, in_any_order: bool = False) -> None:
    """AssertionError, with the differing lines, unless both texts have the same fields."""
    lines = [[" ".join(line) for line in fields(text)] for text in (of_apache, of_rocketd)]
    if in_any_order:
        lines = [sorted(side) for side in lines]
    if lines[0] != lines[1]:
        difference = difflib.unified_diff(*lines, APACHE, ROCKETD, n=1, lineterm="")
        raise AssertionError(f"{what} differs\n" + "\n".join(difference))


TOPIC, GROUP, PRODUCERS = "Basic", "basic-consumers", "basic-producers"
TOOLS = "TOOLS_CONSUMER"
MESSAGES = 12
QUEUES = 4


def fill(both: Both) -> None:
    """The state at the start of each test: a topic whose messages a group has consumed, and both still connected.

    Tests do not change it; a test that changes or deletes something creates it first. The group of mqadmin's own consumers
    has its retry topic from the start: a command makes it if it takes longer than a second, which it may at one side only.
    """
    both.same("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES))
    both.same("updateSubGroup", "-c", CLUSTER, "-g", GROUP)
    both.send(PRODUCERS, [message(TOPIC, number) for number in range(MESSAGES)])
    both.ask("consume", group=GROUP, topic=TOPIC, expression="TagA || TagB")
    both.ask("consumed", group=GROUP, count=MESSAGES)
    both.ask("announce", group=TOOLS, topic=TOPIC)


def message(topic: str, number: int) -> dict[str, Any]:
    """Return a message by its number: queue after queue, tags in turn, a unique key."""
    return {
        "topic": topic,
        "queue": number % QUEUES,
        "body": f"message {number}: žluťoučký kůň, 消息",
        "tags": "TagA" if number % 2 else "TagB",
        "keys": f"key-{number}",
        "properties": {"index": str(number)},
    }
