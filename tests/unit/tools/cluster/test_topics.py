"""``rocketd topic`` against scripted name servers and brokers."""

from contextlib import asynccontextmanager

from rocketd.common.command_line.errors import CommandError
from rocketd.remoting.bodies.tables import QueueData, TopicRouteData
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.base.cluster import ClusterAccess
from rocketd.tools.cluster import topics
from tests.support.client_cluster import ClientTestCase, Cluster

WRITING = 2


class WritingCluster(Cluster):
    """Its topics are for writing only."""

    def answer_105(self, address, request, fields):
        route = TopicRouteData([QueueData(name, 1, 1, WRITING) for name in self.brokers], self.broker_data())
        return RemotingCommand.response(0, body=route.encode(standard=True))

    def answer_215(self, address, request, fields):
        return RemotingCommand.response(0)

    answer_216 = answer_215


class DeleteTests(ClientTestCase):
    cluster_type = WritingCluster

    def setUp(self):
        super().setUp()
        self.lines = []
        self.patch(topics, "complain", self.lines.append)

    @asynccontextmanager
    async def access(self, reactor):
        yield self.client

    def delete(self, cluster_name, *, yes):
        access = type("Access", (ClusterAccess,), {"client": lambda _, reactor: self.access(reactor)})
        return topics._delete(self.clock, access(["ns:9876"]), "T", cluster_name, yes)

    def test_topic_for_writing_only_is_deleted_with_yes(self):
        self.assertEqual(self.result_of(self.delete(None, yes=False)), 0)
        self.assertNotIn(215, self.cluster.codes())
        self.assertEqual(self.result_of(self.delete(None, yes=True)), 0)
        self.assertIn(215, self.cluster.codes())
        found = "topic T has no readable queue; "
        self.assertEqual(self.lines, [f"{found}would delete it; with --yes it is deleted", f"{found}deleted it"])

    def test_topic_of_other_cluster_is_not_deleted(self):
        error = self.failure_of(self.delete("Other", yes=True), CommandError)
        self.assertEqual(str(error), "no broker of cluster Other has the topic T")
        self.assertNotIn(215, self.cluster.codes())
