"""A Java client that asks for the last offset gets the first one, and the broker logs it."""

import os
import subprocess
from pathlib import Path

import pytest

from rocketd.remoting.bodies.groups import GroupProblemKind, GroupProblems
from tests.support import wire
from tests.support.apache import fetch_jars
from tests.support.jars import PeerUnavailableError

PROGRAM = Path(__file__).parent / "group_guard" / "TwoGroups.java"
GET_GROUP_PROBLEMS = 30001
COUNT = 10
LIMIT_SECONDS = 120.0


@pytest.mark.skipif(os.environ.get("ROCKETD_INTEROP_SERVERS") == "apache", reason="Apache's broker does not say")
def test_group_asking_for_last_offset_gets_the_first(clients, cluster, fresh, lacking, tmp_path):
    topic, last, first = fresh("Old"), fresh("Last"), fresh("First")
    try:
        jars = fetch_jars()
    except PeerUnavailableError as e:
        lacking(str(e))
    clients.create_topic(topic, 2)
    clients.run("java", "send", topic, "--group", fresh("P"), "--count", COUNT)

    def problems(group):
        answer = wire.call(cluster.broker, GET_GROUP_PROBLEMS, {"consumerGroup": group})
        return GroupProblems.decode(answer.body).problems

    command = ["java", "-Xmx256m", f"-Duser.home={tmp_path}", "-cp", f"{jars}/*", str(PROGRAM)]
    with (tmp_path / "errors").open("w+") as errors:
        program = subprocess.Popen(
            [*command, cluster.namesrv, topic, last, first, str(COUNT)],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert program.stdout.readline() == "all\n", Path(errors.name).read_text()
            (problem,) = problems(last)
            assert (problem.kind, problem.topic) == (GroupProblemKind.FIRST_INSTEAD_OF_LAST_OFFSET, topic)
            assert problem.queues == [0, 1]
            assert f"{COUNT} messages at that time" in problem.text
            assert problems(first) == []
        finally:
            program.communicate(timeout=LIMIT_SECONDS)
