"""Every program in examples/ and in the guide, as a child process, against one cluster: its output."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.client_guide import guide_text
from tests.support.lacking import need_packages_of
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES, ServerProcesses

EXAMPLES = ROOT / "examples"
LIMIT = 120.0  # seconds
AT_ONCE = 4
SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "300",
}
ACCOUNTS = (
    "accounts:\n- {accessKey: RocketMQ, secretKey: '12345678', defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}\n"
)

# The output of each: the whole text, or a pattern for the whole text.
EXPECTED = {
    "acl.py": "consumed signed\nwithout a signature: BrokerError 1\n",
    "administration.py": "queues 2\noffsets 0 1\nfound a needle ['sharp']\nreset to 0 1\ndeleted\n",
    "async_sends.py": "200 sent, 0 failed\n",
    "batch.py": "100 results\nconsumed 0 to 99\n",
    "broadcast.py": "0 1 2 3 4\n0 1 2 3 4\n",
    "delayed.py": re.compile(
        r"1\.7 s after (1\.[7-9]|[2-9]|\d\d).*\nlevel 1 after [1-9].*\n"
        r"moment after (2\.[5-9]|[3-9]|\d\d).*\nnow after \d.*\n"
    ),
    "faststream_app.py": "0.40 for pear order-17\n",
    "forked_workers.py": "sent with its own\nsent with its own\n",
    "graceful_stop.py": "begins the message\nhas handled the message\nstopped\n",
    "iteration.py": "consumed 0\nconsumed 1\nfailed: this one is too hard\nconsumed 2\nconsumed 3\nconsumed 4\n",
    "json_messages.py": "ann pays 12.5\n",
    "log_shipping.py": "INFO shop: order A17 is paid\nWARNING shop.stock: no more apples\n",
    "mistakes.py": "".join(
        f"{what}\n"
        for what in (
            "not opened: NotStartedError, never",
            "group: IllegalGroupError, never",
            "topic: IllegalTopicError, never",
            "too large: MessageTooLargeError, never",
            "system's topic: IllegalTopicError, never",
            "no name server: NoNameServerError, later perhaps",
            "closed: ClientClosedError, never",
        )
    ),
    "namespace.py": "".join(f"{name} consumed for {name} of ExampleTenants\n" for name in ("red", "blue")),
    "oneway.py": "consumed 10 messages\n",
    "openmessaging_names.py": re.compile("hello\nhello again\n|hello again\nhello\n"),
    "opentelemetry_spans.py": (
        "send ExampleSpans within order\norder within None\n"
        "bake a cake within process ExampleSpans\nprocess ExampleSpans within send ExampleSpans\n"
    ),
    "ordered.py": "".join(f"{order} created paid shipped\n" for order in ("A17", "B18", "C19", "D20")),
    "ordered_by_key.py": "at once: True of one key: 1\nann 01234\nbob 01234\neve 01234\n",
    "polling.py": "polled 0 1 2 3 4\nagain 0 1 2 3 4\ncommitted 5\n",
    "pulling.py": "pulled 0 1 2 3 4\nstored True\n",
    "queues.py": "in turn: True\nnamed: 2\nby key: 1 queue\nat random: True\nown rule: True\n",
    "quickstart.py": "sent to queue True status 0\nconsumed hello with tag greeting\n",
    "quickstart_sync.py": "consumed message 0, message 1, message 2\n",
    "request_reply.py": "how -> HOW\nwhen -> WHEN\n",
    "retries_and_dead_letters.py": (
        "never was tried 2 times\nnonsense was tried 1 time\nsecond try was tried 2 times\ndead: never nonsense\n"
    ),
    "sql_filter.py": "prices 3 4 5\n",
    "start_at.py": "earliest: oldest\na moment: after the moment\n",
    "tags.py": "0 pear\n1 apple\n3 apple\n4 pear\n",
    "threads.py": "100 messages by 8 threads\n",
    "trace.py": "Pub SubAfter SubBefore\n",
    "transactions.py": (
        "transaction: COMMIT\ntransaction: ROLLBACK\ntransaction: UNKNOWN\nconsumed: COMMIT\nconsumed: UNKNOWN\n"
    ),
    "twisted_service.tac": re.compile(r"(?s).*\[stdout#info\] consumed hello\n.*Server Shut Down\.\n"),
}
COMPLAINS = {"mistakes.py", "retries_and_dead_letters.py"}
"""Programs in which the client logs a warning, which ``logging`` prints if it is not configured."""


def programs():
    return sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".tac"))


def guide_programs():
    """Return the programs of the guide, each with its output, by their headings."""
    found, heading = {}, ""
    parts = r"^## (?P<heading>[^\n]*)$|^```python\n(?P<program>.*?)^```\n\n```text\n(?P<output>.*?)^```$"
    for match in re.finditer(parts, guide_text(), re.MULTILINE | re.DOTALL):
        heading = match["heading"] or heading
        if match["program"]:
            name = heading if heading not in found else f"{heading}, more"
            assert name not in found, "three programs below one heading"
            found[name] = (match["program"], match["output"])
    return found


def topics():
    """The topics of all programs."""
    examples = "".join((EXAMPLES / name).read_text() for name in programs())
    guide = "".join(program for program, _ in guide_programs().values())
    found = re.findall(r'"(Example\w+)"', examples) + re.findall(r'(?:Message|RocketMQHandler)\("(\w+)"', guide)
    return {*found, "%DLQ%example_retries", "red%ExampleTenants", "blue%ExampleTenants"}


def with_topics(servers):
    """Create the topics before the broker starts.

    The name server learns of a topic created by its first message only a moment after the sender has the answer. A
    consumer that starts in that moment finds no such topic.
    """
    table = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for name in topics()
    }
    path = servers.store / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"topicConfigTable": table}))
    return servers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two clusters: one that asks for signatures, and one for all but one of the examples."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    (home / "conf" / "plain_acl.yml").chmod(0o600)
    clusters = [
        with_topics(ServerProcesses(tmp_path_factory.mktemp("open"), **SETTINGS)),
        with_topics(ServerProcesses(tmp_path_factory.mktemp("guarded"), aclEnable="true", rocketmqHome=str(home))),
    ]

    def start(servers):
        servers.start_namesrv()
        servers.start_broker()
        return servers.namesrv_address

    try:
        with ThreadPoolExecutor(2) as pool:
            yield list(pool.map(start, clusters))
    finally:
        for servers in clusters:
            servers.kill_all()


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory):
    """Begin all programs, some at once; futures of how they end, by name."""
    open_address, guarded_address = cluster
    home = tmp_path_factory.mktemp("programs")

    def run(command, **variables):
        return subprocess.run(
            [sys.executable, *command],
            cwd=home,
            env={**os.environ, "PYTHONPATH": SOURCES, "HOME": str(home), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def run_example(name):
        if name.endswith(".tac"):
            twistd = str(Path(sys.executable).with_name("twistd"))
            command = [twistd, "-n", "--pidfile", "", "-y", str(EXAMPLES / name)]
            return run(command, NAMESRV_ADDR=open_address)
        address = guarded_address if name == "acl.py" else open_address
        return run(["-W", "error", str(EXAMPLES / name), address])

    def run_block(program):
        return run(["-W", "error", "-c", program], NAMESRV_ADDR=open_address)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            **{name: pool.submit(run_example, name) for name in programs()},
            **{name: pool.submit(run_block, program) for name, (program, _) in guide_programs().items()},
        }


@pytest.mark.parametrize("name", programs())
def test_example(runs, name):
    assert name in EXPECTED, f"say in {Path(__file__).name} what examples/{name} prints"
    need_packages_of((EXAMPLES / name).read_text())
    ended = runs[name].result()
    expected = EXPECTED[name]
    if isinstance(expected, str):
        assert ended.stdout == expected, ended.stderr
    else:
        assert expected.fullmatch(ended.stdout), ended.stdout + ended.stderr
    assert ended.returncode == 0, ended.stderr
    assert name in COMPLAINS or ended.stderr == ""


@pytest.mark.parametrize("name", guide_programs())
def test_program_of_the_guide(runs, name):
    program, output = guide_programs()[name]
    need_packages_of(program)
    ended = runs[name].result()
    assert (ended.stdout, ended.returncode) == (output, 0), ended.stderr


def test_every_example_is_listed():
    listed = re.findall(r"^\| \[(\S+)\]\(\1\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == programs()
    assert sorted(EXPECTED) == programs()


def test_examples_are_short():
    for name in programs():
        code = [line for line in (EXAMPLES / name).read_text().splitlines() if line.strip()]
        assert len(code) <= 45, name
