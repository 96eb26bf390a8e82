"""Commands that change something at several brokers, against scripted ones: all are told, and each refusal is a line."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from unittest.mock import patch

from rocketd.client.admin import AdminEngine
from rocketd.client.errors import BrokerUnreachableError
from rocketd.common.command_line.errors import CommandError
from rocketd.remoting.bodies.admin import (
    ConsumeStats,
    GetBrokerClusterAclConfigResponseBody,
    OffsetWrapper,
    PlainAccessConfig,
)
from rocketd.remoting.bodies.tables import MessageQueue, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.base import cluster
from rocketd.tools.cli import main
from tests.support.client_cluster import ClientTestCase

AT_A, AT_B = "a:10911", "b:10911"
REFUSED = f"not changed at a: {AT_A} answers NO_PERMISSION (16): because"
NO_MASTER = "no master of b is registered at the name servers, only slaves are; start the master"
NOT_AT_B = f"not changed at b: {NO_MASTER}"
NOT_FROM_B = f"nothing from b: {NO_MASTER}"
SILENT = f"nothing from a: {AT_A} answers NO_PERMISSION (16): because"


def ok(*_):
    return RemotingCommand.response(0)


class ChangeTestCase(ClientTestCase):
    def run_command(self, *words):
        """Run a command; return its status, and the lines of its two outputs."""
        out, err = TextIOWrapper(BytesIO(), "utf-8"), StringIO()

        async def ended(command, expected):
            try:
                return await command(self.clock)
            except (CommandError, *expected) as error:
                return error

        def run(command, expected, reactor):
            result = self.result_of(ended(command, expected))
            if isinstance(result, Exception):
                raise CommandError(str(result)) from result
            return result

        with (
            patch.object(cluster, "ClientInstance", lambda reactor, config: self.client),
            patch.object(cluster, "run_command", run),
            patch.object(cluster, "show_log", lambda level: None),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status = main(words)
            sys.stdout.flush()
        lines = [line.partition(": ")[2] for line in err.getvalue().splitlines()]
        return status, [line.split("\t") for line in out.buffer.getvalue().decode().splitlines()], lines

    def refuse(self, code, *addresses):
        for address in addresses or (AT_A,):
            self.cluster.refusals[code, address] = ResponseCode.NO_PERMISSION

    def lose_master(self):
        """Let only a slave of broker b be registered."""
        self.cluster.masterless = {"b"}
        self.cluster.slaves = {"b": {1: "b:10921"}}

    def told(self, code):
        return [address for address, _ in self.cluster.of(code)]


class AccountTests(ChangeTestCase):
    """Broker a refuses, or does not answer; broker b works."""

    def setUp(self):
        super().setUp()
        self.admins = {AT_A: False, AT_B: False}
        self.white = {AT_A: [], AT_B: []}
        self.cluster.answer_54 = self.accounts
        self.cluster.answer_50 = self.put
        self.cluster.answer_51 = ok
        self.cluster.answer_53 = self.put_white

    def accounts(self, address, request, fields):
        known = [PlainAccessConfig("clerk00", "clerkSecret", admin=self.admins[address])]
        body = GetBrokerClusterAclConfigResponseBody(self.white[address], known)
        return RemotingCommand.response(0, body=body.encode())

    def put(self, address, request, fields):
        self.admins[address] = fields["admin"] == "true"
        return ok()

    def put_white(self, address, request, fields):
        self.white[address] = fields["globalWhiteAddrs"].split(",")
        return ok()

    def test_account_is_put_at_the_others_if_a_broker_refuses(self):
        self.refuse(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
        status, rows, err = self.run_command("acl", "put", "clerk00", "--admin")
        self.assertEqual((status, rows[1:], err), (1, [["b", "admin", "no", "yes"]], [REFUSED]))

    def test_account_is_put_at_the_others_if_a_broker_has_no_access_control(self):
        self.refuse(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        status, rows, err = self.run_command("acl", "put", "clerk00", "--admin")
        self.assertEqual((status, rows[1:], err), (1, [["b", "admin", "no", "yes"]], [REFUSED]))
        self.assertEqual(self.run_command("acl", "list")[::2], (3, [SILENT]))
        self.assertEqual(self.run_command("acl", "whitelist"), (3, [["broker", "addresses"], ["b", "-"]], [SILENT]))
        status, rows, err = self.run_command("acl", "delete", "clerk00", "--yes")
        self.assertEqual((status, err), (1, [REFUSED]))
        self.assertEqual(self.told(RequestCode.DELETE_ACL_CONFIG), [AT_B])

    def test_each_refusal_is_a_line(self):
        self.refuse(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, AT_A, AT_B)
        status, rows, err = self.run_command("acl", "put", "clerk00", "--admin")
        of_b = REFUSED.replace(AT_A, AT_B).replace(" a:", " b:")
        self.assertEqual((status, rows[1:], err), (1, [], [REFUSED, of_b]))

    def test_secret_of_a_broker_that_refuses_has_no_row(self):
        self.refuse(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
        secret = TextIOWrapper(BytesIO(b"otherSecret"))
        with patch.object(sys, "stdin", secret):
            status, rows, err = self.run_command("acl", "put", "clerk00", "--secret-file", "-")
        self.assertEqual((status, rows[1:], err), (1, [["b", "secret", "hidden", "hidden"]], [REFUSED]))

    def test_broker_without_master_is_a_refusal(self):
        self.lose_master()
        status, rows, err = self.run_command("acl", "put", "clerk00", "--admin")
        self.assertEqual((status, rows[1:], err), (1, [["a", "admin", "no", "yes"]], [NOT_AT_B]))
        status, rows, err = self.run_command("acl", "whitelist", "10.0.0.1", "--yes")
        self.assertEqual((status, rows[1:], err), (1, [["a", "-", "10.0.0.1"]], [NOT_AT_B]))
        self.assertEqual(self.run_command("acl", "list")[::2], (3, [NOT_FROM_B]))
        would = "would delete account clerk00 at a; with --yes it is deleted"
        self.assertEqual(self.run_command("acl", "delete", "clerk00"), (3, [], [would, NOT_FROM_B]))
        self.assertEqual(self.run_command("acl", "delete", "clerk00", "--yes"), (1, [], [NOT_AT_B]))
        self.assertEqual(self.told(RequestCode.DELETE_ACL_CONFIG), [AT_A])

    def test_new_account_without_secret_changes_no_broker(self):
        status, _, (line,) = self.run_command("acl", "put", "nobody0", "--admin")
        self.assertEqual((status, self.told(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)), (1, []))
        self.assertIn("needs a secret", line)

    def test_white_addresses_are_set_at_the_others_if_a_broker_refuses(self):
        self.refuse(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
        status, rows, err = self.run_command("acl", "whitelist", "10.0.0.1", "--yes")
        self.assertEqual((status, rows[1:], err), (1, [["a", "-", "-"], ["b", "-", "10.0.0.1"]], [REFUSED]))


class TopicTests(ChangeTestCase):
    def test_permission_is_changed_at_the_others_if_a_broker_refuses(self):
        self.cluster.answer_17 = ok
        self.refuse(RequestCode.UPDATE_AND_CREATE_TOPIC)
        status, _, (line,) = self.run_command("topic", "permission", "T", "r", "--yes")
        self.assertEqual((status, self.told(RequestCode.UPDATE_AND_CREATE_TOPIC)), (1, [AT_A, AT_B]))
        self.assertIn("NO_PERMISSION (16): because", line)

    def test_topic_is_created_at_the_others_and_each_refusal_is_told(self):
        self.cluster.answer_17 = ok
        self.refuse(RequestCode.UPDATE_AND_CREATE_TOPIC, AT_A, AT_B)
        status, _, (line,) = self.run_command("topic", "create", "New")
        self.assertEqual(status, 1)
        self.assertIn(f"{AT_A} answers NO_PERMISSION (16): because; {AT_B} answers NO_PERMISSION (16): because", line)

    def test_broker_without_master_is_told_and_the_others_are_changed(self):
        self.lose_master()
        self.cluster.answer_201 = lambda *_: RemotingCommand.response(0, body=SubscriptionGroupWrapper().encode())
        for words, code in (
            (("topic", "create", "New"), RequestCode.UPDATE_AND_CREATE_TOPIC),
            (("group", "create", "CG"), RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
            (("broker", "clean", "--topics", "--yes"), RequestCode.CLEAN_UNUSED_TOPIC),
            (("broker", "clean", "--queues", "--yes"), RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
        ):
            setattr(self.cluster, f"answer_{code.value}", ok)
            status, _, (line,) = self.run_command(*words)
            self.assertEqual((status, line.removeprefix("not changed at b: ")), (1, NO_MASTER), words)
            self.assertEqual(self.told(code), [AT_A], words)
        would = "would delete the queues of former topics at a; with --yes they are deleted"
        self.assertEqual(self.run_command("broker", "clean", "--topics"), (3, [], [NOT_FROM_B, would]))

    def test_topic_is_deleted_at_name_servers_if_a_broker_has_no_master(self):
        self.lose_master()
        self.cluster.addresses = ("ns:9876",)
        self.cluster.answer_215 = self.cluster.answer_216 = ok
        admin = AdminEngine(self.client)
        self.result_of(admin.start())
        self.assertEqual(str(self.failure_of(admin.delete_topic("T"), BrokerUnreachableError)), NO_MASTER)
        self.assertEqual(self.told(RequestCode.DELETE_TOPIC_IN_BROKER), [AT_A])
        self.assertEqual(self.told(RequestCode.DELETE_TOPIC_IN_NAMESRV), ["ns:9876"])


class OffsetTests(ChangeTestCase):
    def setUp(self):
        super().setUp()
        self.consumed = {("CG", AT_A): 3, ("CG", AT_B): 4}
        self.cluster.answer_203 = lambda *_: RemotingCommand.response(ResponseCode.CONSUMER_NOT_ONLINE)
        self.cluster.answer_208 = self.progress
        self.cluster.answer_314 = self.clone
        self.cluster.answer_15 = self.store
        self.cluster.refusals = {(38, AT_A): 1, (38, AT_B): 1}

    def progress(self, address, request, fields):
        table = {}
        if (fields["consumerGroup"], address) in self.consumed:
            queue = MessageQueue("T", address[0], 0)
            table[queue] = OffsetWrapper(7, self.consumed[fields["consumerGroup"], address], 0)
        return RemotingCommand.response(0, body=ConsumeStats(table).encode())

    def clone(self, address, request, fields):
        self.consumed[fields["destGroup"], address] = self.consumed[fields["srcGroup"], address]
        return ok()

    def store(self, address, request, fields):
        self.consumed[fields["consumerGroup"], address] = int(fields["commitOffset"])
        return ok()

    def test_offsets_are_cloned_at_the_others_if_a_broker_refuses(self):
        self.consumed["Copy", AT_A] = 1
        self.refuse(RequestCode.CLONE_GROUP_OFFSET)
        status, rows, err = self.run_command("offset", "clone", "CG", "Copy", "--yes")
        self.assertEqual(rows[1:], [["T", "a", "0", "1", "1"], ["T", "b", "0", "-", "4"]])
        self.assertEqual((status, err), (1, [REFUSED]))

    def test_offsets_are_reset_at_the_others_if_a_broker_refuses(self):
        self.cluster.refusals[RequestCode.UPDATE_CONSUMER_OFFSET, AT_A] = ResponseCode.NO_PERMISSION
        status, rows, (line,) = self.run_command("offset", "reset", "CG", "T", "--to", "latest", "--yes")
        self.assertEqual((status, rows[1:]), (1, [["T", "a", "0", "3", "3"], ["T", "b", "0", "4", "7"]]))
        self.assertIn("NO_PERMISSION (16): because", line)

    def check_reset_without_b(self, reason):
        status, rows, (silent, would) = self.run_command("offset", "reset", "CG", "T", "--to", "earliest")
        self.assertEqual((status, rows[1:], self.consumed["CG", AT_A]), (3, [["T", "a", "0", "3", "0"]], 3))
        self.assertTrue(silent.startswith(f"nothing from b: {reason}"), silent)
        self.assertIn("would reset 1 queue", would)
        status, rows, (line,) = self.run_command("offset", "reset", "CG", "T", "--to", "latest", "--yes")
        self.assertEqual((status, rows[1:], self.consumed["CG", AT_A]), (1, [["T", "a", "0", "3", "7"]], 7))
        self.assertTrue(line.startswith(f"not changed at b: {reason}"), line)

    def test_offsets_are_reset_at_the_others_if_a_broker_has_no_master(self):
        self.lose_master()
        self.check_reset_without_b(NO_MASTER)

    def test_offsets_are_reset_at_the_others_if_a_broker_does_not_answer(self):
        self.cluster.down = {AT_B}
        self.check_reset_without_b("connect to b:10911 failed")

    def test_offsets_are_cloned_at_the_others_if_a_broker_has_no_master(self):
        self.lose_master()
        known = SubscriptionGroupWrapper({"Copy": SubscriptionGroupConfig("Copy")})
        self.cluster.answer_201 = lambda *_: RemotingCommand.response(0, body=known.encode())
        for topic in ((), ("--topic", "T")):
            self.consumed.pop(("Copy", AT_A), None)
            status, rows, err = self.run_command("offset", "clone", "CG", "Copy", "--yes", *topic)
            self.assertEqual((status, rows[1:], err), (1, [["T", "a", "0", "-", "3"]], [NOT_AT_B]))
        self.assertEqual(self.run_command("offset", "show", "CG")[::2], (3, [NOT_FROM_B]))
