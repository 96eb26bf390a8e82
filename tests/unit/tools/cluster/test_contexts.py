"""Contexts: named clusters of the command line, in this process."""

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import BrokerError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.base.lacking_requests import reason_of
from rocketd.tools.cli import main
from rocketd.tools.messages import produce


class ContextsTests(SynchronousTestCase):
    def setUp(self):
        self.home = Path(self.mktemp()).absolute()
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.patch(os, "environ", {**inherited, "XDG_CONFIG_HOME": str(self.home)})
        self.file = self.home / "rocketd" / "contexts.toml"
        self.account = Path(self.mktemp()).absolute()
        self.account.write_text("accessKey: me\nsecretKey: secret\n")

    def run_main(self, *arguments):
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(arguments)
        return status, out.getvalue(), err.getvalue()

    def ok(self, *arguments):
        status, out, _ = self.run_main(*arguments)
        self.assertEqual(status, 0)
        return [line.split("\t") for line in out.splitlines()]

    def refused(self, *arguments, status=1):
        found, out, err = self.run_main(*arguments)
        self.assertEqual((found, out, err.count("\n")), (status, "", 1), err)
        return err

    def access(self, *arguments):
        """Return how a command would reach its cluster."""
        seen = []

        def send_all(production, reactor, cluster):
            seen.append(cluster)
            return 0

        self.patch(produce.Production, "send_all", send_all)
        self.patch(produce, "run_client_command", lambda command: command(None))
        self.assertEqual(self.run_main("produce", "T", "x", *arguments), (0, "", ""))
        return seen[0]

    def add_prod(self):
        self.ok("context", "add", "prod", "-n", "a:1;b:2", "--credentials", str(self.account), "--tls-unverified")

    def test_context_is_added_listed_and_removed(self):
        self.assertEqual(len(self.ok("context", "list")), 1)
        self.add_prod()
        self.ok("context", "add", "test", "--namesrv", "t:1", "--tls-ca", str(self.account))
        self.ok("context", "add", "test", "--namesrv", "t:2", "--tls")
        self.ok("context", "use", "test")
        expected = [["prod", "no", "a:1;b:2", str(self.account), "unverified"], ["test", "yes", "t:2", "-", "yes"]]
        self.assertEqual(self.ok("context", "list")[1:], expected)
        self.assertNotIn("secret", self.file.read_text())
        self.ok("context", "remove", "test")
        self.assertEqual(self.ok("context", "list")[1:], expected[:1])
        self.assertNotIn("used", self.file.read_text())

    def test_command_takes_context_of_option_then_variable_then_used_one(self):
        self.add_prod()
        self.ok("context", "add", "test", "--namesrv", "t:1")
        self.assertEqual(self.access().namesrv, ["127.0.0.1:9876"])
        self.ok("context", "use", "test")
        self.assertEqual(self.access().namesrv, ["t:1"])
        os.environ["ROCKETD_CONTEXT"] = "prod"
        access = self.access()
        self.assertEqual((access.namesrv, access.credentials.access_key), (["a:1", "b:2"], "me"))
        self.assertEqual((access.tls, access.ca), ("unverified", None))
        self.assertEqual(self.access("--context", "test").credentials, None)
        del os.environ["ROCKETD_CONTEXT"]
        self.ok("context", "use", "--none")
        self.assertEqual(self.access().namesrv, ["127.0.0.1:9876"])

    def test_name_servers_of_variable_precede_used_context_alone(self):
        self.add_prod()
        self.ok("context", "use", "prod")
        os.environ["NAMESRV_ADDR"] = "v:1"
        self.assertEqual(self.access().namesrv, ["v:1"])
        self.assertEqual(self.access("--context", "prod").namesrv, ["a:1", "b:2"])

    def test_account_of_context_is_not_used_with_other_name_servers(self):
        self.add_prod()
        self.ok("context", "use", "prod")
        os.environ["ROCKETD_CONTEXT"] = "prod"
        access = self.access("--namesrv", "o:1")
        self.assertEqual((access.namesrv, access.credentials, access.tls), (["o:1"], None, False))

    def test_options_of_command_precede_those_of_context(self):
        self.add_prod()
        other = Path(self.mktemp())
        other.write_text("accessKey: other\nsecretKey: secret\n")
        access = self.access("--context", "prod", "--tls", "--credentials", str(other))
        self.assertEqual((access.credentials.access_key, access.tls), ("other", True))

    def test_wrong_use_is_refused_with_one_line(self):
        self.add_prod()
        command = ("produce", "T", "x")
        self.assertIn("did you mean prod?", self.refused(*command, "--context", "prd"))
        self.assertIn("context prd is unknown", self.refused("context", "use", "prd"))
        self.assertIn("context prd is unknown", self.refused("context", "remove", "prd"))
        both = self.refused(*command, "--context", "prod", "-n", "o:1", status=2)
        self.assertIn("--namesrv cannot be given with --context", both)
        self.assertIn("up to 64 letters", self.refused("context", "add", "a b", "-n", "o:1", status=2))
        self.assertIn("--namesrv is missing", self.refused("context", "add", "a", status=2))
        self.assertIn("a NAME, or --none", self.refused("context", "use", status=2))
        self.account.unlink()
        self.assertIn("No such file", self.refused(*command, "--context", "prod"))

    def test_file_of_another_form_is_refused_with_its_path(self):
        self.file.parent.mkdir(parents=True)
        for text in (
            "used",
            "contexts = 1",
            "used = 1",
            "[contexts.a]",
            "[contexts.a]\nnamesrv = 'nowhere'",
            "[contexts.a]\nnamesrv = 'a:1'\ntls = 'no'",
            "[contexts.a]\nnamesrv = 'a:1'\nsecret = 'x'",
            "[contexts.'a b']\nnamesrv = 'a:1'",
        ):
            self.file.write_text(text)
            self.assertIn(str(self.file), self.refused("context", "list"))


class LackingRequestsTests(SynchronousTestCase):
    def reason(self, code, remark):
        return reason_of(BrokerError("h:1", RemotingCommand.response(code, remark)))

    def test_unknown_request_names_servers_that_have_it(self):
        for code, text in (
            (30002, "h:1 does not know the request GET_CONSUMER_LAG (30002); servers of rocketd do"),
            (351, "h:1 does not know the request GET_TOPIC_CONFIG (351); servers of RocketMQ 5 and of rocketd do"),
            (
                205,
                "h:1 does not know the request WIPE_WRITE_PERM_OF_BROKER (205); servers of RocketMQ 4.9 and of rocketd do",
            ),
            (29999, "h:1 does not know the request 29999; servers of RocketMQ 4.9 and of rocketd do"),
        ):
            self.assertEqual(self.reason(3, f" request type {code} not supported"), text)

    def test_other_refusals_keep_their_text(self):
        self.assertEqual(
            self.reason(1, " request type 54 not supported"),
            "h:1 answers SYSTEM_ERROR (1):  request type 54 not supported",
        )
        self.assertIn("elsewhere", self.reason(3, "elsewhere"))
