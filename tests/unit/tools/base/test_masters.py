"""``rocketd groups`` and ``rocketd lag`` against scripted brokers: failures of some do not hide answers of others."""

import json
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from unittest.mock import patch

from rocketd.common.command_line.errors import CommandError
from rocketd.remoting.bodies.groups import GroupProblem, GroupProblemKind, GroupProblems
from rocketd.remoting.bodies.lag import ConsumerLag, QueueLag
from rocketd.remoting.bodies.tables import BrokerData, ClusterInfo, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.base import cluster
from rocketd.tools.base.cluster import ClusterAccess
from rocketd.tools.cluster.groups import print_problems
from rocketd.tools.cluster.lag import print_lag
from tests.support.client_cluster import ClientTestCase

GROUPS, LAG = RequestCode.GET_GROUP_PROBLEMS, RequestCode.GET_CONSUMER_LAG
DOWN = "nothing from a: connect to a:10911 failed"
REFUSED = "nothing from a: a:10911 answers NO_PERMISSION (16): because"


async def ended(command):
    """Return a command's status, and its last line on standard error."""
    try:
        return await command, []
    except CommandError as error:
        return error.status, [str(error)]


class MastersTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.problems = {}
        self.groups = {"G"}
        cluster = self.cluster
        cluster.answer_30001 = self.answer_problems
        cluster.answer_201 = self.answer_groups
        cluster.answer_30002 = self.answer_lag

    def answer_problems(self, address, request, fields):
        texts = self.problems.get(address, ()) if fields.get("consumerGroup") in (None, "G") else ()
        problems = [GroupProblem("G", GroupProblemKind.UNREAD_QUEUES, text) for text in texts]
        return RemotingCommand.response(0, body=GroupProblems(problems).encode())

    def answer_groups(self, address, request, fields):
        table = {group: SubscriptionGroupConfig(group_name=group) for group in self.groups}
        return RemotingCommand.response(0, body=SubscriptionGroupWrapper(table).encode())

    def answer_lag(self, address, request, fields):
        if fields.get("topic") not in (None, *self.cluster.topics):
            return RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST)
        if fields["consumerGroup"] not in self.groups:
            return RemotingCommand.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return RemotingCommand.response(0, body=ConsumerLag("G", False, queues=[QueueLag("T", 0)]).encode())

    def call(self, command, group=None, *topic):
        """Run a command's coroutine; return its status, and the lines of its two outputs."""
        if command is print_lag:
            topic = topic or (None,)
        out, err = TextIOWrapper(BytesIO(), write_through=True), StringIO()
        with (
            patch.object(cluster, "ClientInstance", lambda reactor, config: self.client),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status, why = self.result_of(ended(command(self.clock, ClusterAccess(["ns:9876"]), group, *topic)))
        self.assertTrue(self.client.remoting.closed)
        return (
            status,
            out.buffer.getvalue().decode().splitlines(),
            [line.removeprefix("rocketd: ") for line in err.getvalue().splitlines()] + why,
        )


class GroupsTests(MastersTestCase):
    def test_all_answer(self):
        self.assertEqual(self.call(print_problems), (0, [], []))
        self.assertEqual(self.call(print_problems, "G"), (0, [], []))
        self.problems = {"b:10911": ["1 unread"], "a:10911": ["2 unread"]}
        lines = ["a\tG\tUNREAD_QUEUES\t2 unread", "b\tG\tUNREAD_QUEUES\t1 unread"]
        self.assertEqual(self.call(print_problems), (1, lines, []))
        _, out, _ = self.call(partial(print_problems, as_json=True))
        problem = {"broker": "a", "group": "G", "kind": "UNREAD_QUEUES", "problem": "2 unread"}
        self.assertEqual((json.loads(out[0]), len(out)), (problem, 2))

    def test_unknown_group_is_status_1(self):
        self.assertEqual(self.call(print_problems, "H"), (1, [], ["no broker knows the group H"]))

    def test_groups_without_answer_of_one_broker_is_status_3(self):
        self.problems = {"b:10911": ["1 unread"]}
        lines = ["b\tG\tUNREAD_QUEUES\t1 unread"]
        self.cluster.down = {"a:10911"}
        status, out, err = self.call(print_problems)
        self.assertEqual((status, out, len(err)), (3, lines, 1))
        self.assertTrue(err[0].startswith(DOWN), err)
        self.assertEqual(self.call(print_problems, "H")[2][1:], ["no broker that answered knows the group H"])
        self.cluster.down = set()
        self.cluster.refusals = {(GROUPS, "a:10911"): 16}
        self.assertEqual(self.call(print_problems), (3, lines, [REFUSED]))
        self.problems = {}
        self.assertEqual(self.call(print_problems, "G"), (3, [], [REFUSED]))

    def test_none_answers(self):
        self.cluster.down = {"a:10911", "b:10911"}
        status, out, err = self.call(print_problems)
        self.assertEqual((status, out, len(err), err[-1]), (3, [], 3, "no broker answered"))

    def test_none_can_be_asked(self):
        self.cluster.brokers = []
        why = ["no broker is registered at name server ns:9876"]
        self.assertEqual(self.call(print_problems), (3, [], why))
        self.cluster.down = {None}
        status, _, err = self.call(print_problems)
        self.assertEqual((status, len(err)), (3, 1))


class LagTests(MastersTestCase):
    def test_lag_without_answer_of_one_broker_is_status_3(self):
        status, out, err = self.call(print_lag, "G")
        self.assertEqual((status, [line.split("\t")[0] for line in out], err), (0, ["broker", "a", "b", "all"], []))
        self.cluster.refusals = {(LAG, "a:10911"): 16}
        status, out, err = self.call(print_lag, "G")
        self.assertEqual((status, [line.split("\t")[0] for line in out], err), (3, ["broker", "b", "all"], [REFUSED]))

    def test_unknown_group_or_topic_is_named(self):
        self.assertEqual(self.call(print_lag, "H"), (1, [], ["no broker knows the group H"]))
        self.assertEqual(self.call(print_lag, "G", "U"), (1, [], ["no broker has the topic U"]))

    def test_group_unknown_to_answering_brokers_is_status_3(self):
        self.groups = set()
        self.cluster.down = {"a:10911"}
        status, out, err = self.call(print_lag, "G")
        self.assertEqual((status, out, err[1:]), (3, [], ["no broker that answered knows the group G"]))
        self.assertTrue(err[0].startswith(DOWN), err)
        slaves = ClusterInfo({"a": BrokerData("c", "a", {1: "a:10921"})}, {"c": {"a"}})
        self.cluster.answer_106 = lambda *_: RemotingCommand.response(0, body=slaves.encode())
        only_slaves = (
            "nothing from a: no master of a is registered at the name servers, only slaves are; start the master"
        )
        self.assertEqual(self.call(print_lag, "G"), (3, [], [only_slaves, "no broker answered"]))
        self.cluster.brokers = []
        del self.cluster.answer_106
        self.assertEqual(self.call(print_lag, "G"), (3, [], ["no broker is registered at name server ns:9876"]))
