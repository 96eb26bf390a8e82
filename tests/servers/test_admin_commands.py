"""``rocketd topic``, ``rocketd broker`` and ``rocketd message`` as processes, against a separate cluster."""

import json

from tests.support.cli_processes import CommandTestCase


class AdminCommandTests(CommandTestCase):
    def ok(self, *command):
        status, lines, err = self.call(*command)
        self.assertEqual((status, err), (0, []))
        return lines

    def refused(self, cause, *command):
        status, _, err = self.call(*command)
        self.assertEqual((status, len(err)), (1, 1), err)
        self.assertTrue(err[0].startswith(f"rocketd {command[0]} {command[1]}: "), err)
        self.assertIn(cause, err[0])

    def test_topics_messages_and_brokers(self):
        # One cluster for all: each process of a server or command costs seconds on a busy machine.
        self.up()
        self.topics()
        self.messages()
        self.brokers()

    def topics(self):
        self.ok("topic", "create", "Orders", "--queues", "2")
        self.assertEqual(self.ok("topic", "list"), ["Orders"])
        self.assertEqual(self.ok("topic", "list", "--json"), ['{"topic": "Orders"}'])
        self.ok("produce", "Orders", "a", "b", "c", "--queue", "1")
        first, *rows = [line.split("\t") for line in self.ok("topic", "show", "Orders")]
        self.assertEqual(first, ["broker", "queue", "first", "end", "messages", "oldest"])
        self.assertEqual([row[1:5] for row in rows], [["0", "0", "0", "0"], ["1", "0", "3", "3"]])
        self.assertEqual(rows[0][5], "-")
        self.assertRegex(rows[1][5], r"^20\d\d-.*Z$")
        status, _, err = self.call("topic", "delete", "Orders")
        would = "rocketd topic delete: would delete Orders with 3 messages in 2 queues; with --yes it is deleted"
        self.assertEqual((status, err), (0, [would]))
        # So the messages are there still.
        self.assertEqual(json.loads(self.ok("topic", "show", "Orders", "--json")[1])["messages"], 3)
        status, _, err = self.call("topic", "delete", "Orders", "--yes")
        self.assertEqual((status, err), (0, ["rocketd topic delete: deleted Orders with 3 messages in 2 queues"]))
        self.refused("no route for topic Orders", "topic", "show", "Orders")
        self.assertIn("TBW102", self.ok("topic", "list", "--all"))

    def messages(self):
        sent = self.ok("produce", "T", "hello", "--keys", "k1", "--tags", "A")[0].split()[0]
        self.ok("produce", "T", "again", "--keys", "k1 k2")
        lines = self.ok("message", "show", "T", sent)
        self.assertEqual(lines[-2:], ["", "    hello"])
        self.assertIn("tags: A", lines)
        found = [json.loads(line) for line in self.ok("message", "find", "T", "k1", "--since", "-5m", "--json")]
        self.assertEqual([(each["body"], each["keys"]) for each in found], [("hello", ["k1"]), ("again", ["k1", "k2"])])
        self.refused("topic T has no message with the key k9", "message", "find", "T", "k9")
        self.refused("topic T has no message with the id", "message", "show", "T", "0" * 32)

    def brokers(self):
        first, row = [line.split("\t") for line in self.ok("broker", "list")]
        self.assertEqual(first, ["cluster", "broker", "id", "address", "version", "in/s", "out/s", "disk"])
        self.assertEqual((row[0], row[2], row[4]), ("DefaultCluster", "0", "V4_9_7"))
        self.assertRegex(row[7], r"^\d+%$")
        state = dict(line.split("\t") for line in self.ok("broker", "show", row[1]))
        self.assertEqual(state["brokerVersionDesc"], "V4_9_7")
        self.refused(f"no broker Moon is registered; known are {row[1]}", "broker", "show", "Moon")
