"""The command line in this process: options, help and refusals."""

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd import core
from rocketd.client.settings.config import ClientConfig
from rocketd.common.command_line.commands import LazyGroup
from rocketd.tools.cli import ROCKETD, main
from rocketd.tools.messages import produce
from rocketd.tools.messages.consume import consume_command
from rocketd.tools.messages.positions import StartPosition
from rocketd.tools.servers.up import up_command
from tests.support import cli_processes
from tests.support.cli_processes import ROOT


def parsed(command, *arguments):
    """Return the values of a command's options and arguments by name."""
    return command.make_context("command", list(arguments)).params


def run_main(*arguments):
    """Run a command line in this process; return its status and its two outputs."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


class OptionsTests(SynchronousTestCase):
    def production(self, *arguments):
        """Return the production and the cluster that ``rocketd produce`` would use."""
        seen = []

        def send_all(production, reactor, cluster):
            seen.append((production, cluster))
            return 0

        self.patch(produce.Production, "send_all", send_all)
        self.patch(produce, "run_client_command", lambda command: command(None))
        self.assertEqual(run_main("produce", *arguments), (0, "", ""))
        return seen[0]

    def test_defaults(self):
        environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        self.patch(os, "environ", environment)
        options = parsed(consume_command, "T")
        self.assertEqual((options["topic"], options["namesrv"]), ("T", ["127.0.0.1:9876"]))
        self.assertEqual((options["group"], options["tags"], options["start"]), (None, "*", StartPosition("earliest")))
        self.assertIsNone(options["count"])
        up = parsed(up_command)
        self.assertEqual((up["data"], up["namesrv_port"], up["broker_port"]), ("./rocketd-data", 9876, 10911))
        self.assertEqual((up["brokers"], up["host"]), (1, "127.0.0.1"))

    def test_name_servers_come_from_option_then_environment_then_this_machine(self):
        environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        for variable, arguments, expected in (
            (None, (), ["127.0.0.1:9876"]),
            ("", (), ["127.0.0.1:9876"]),
            ("h:1;g:2", (), ["h:1", "g:2"]),
            ("h:1", ("-n", "o:3"), ["o:3"]),
        ):
            values = environment if variable is None else {**environment, "NAMESRV_ADDR": variable}
            self.patch(os, "environ", values)
            self.assertEqual(parsed(consume_command, "T", *arguments)["namesrv"], expected)
            if not arguments:
                self.assertEqual(ClientConfig().name_servers(), expected)
        self.patch(os, "environ", {**environment, "NAMESRV_ADDR": "nowhere"})
        status, out, err = run_main("consume", "T")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(err.startswith("rocketd consume: environment variable NAMESRV_ADDR 'nowhere': accepted"), err)

    def test_parts_of_messages_reach_the_message(self):
        more = ("--property", "a=b", "--property", "c=d=e", "--delay-level", "3", "--queue", "b:1")
        sent = self.production("T", "x", *more)[0]
        message = sent._message(b"x")
        self.assertEqual((message.properties, message.delay_level, sent.queue), ({"a": "b", "c": "d=e"}, 3, ("b", 1)))
        sent = self.production("T", "x", "--deliver-after", "2.5", "--queue", "0")[0]
        self.assertEqual((sent._message(b"x").deliver_after, sent.queue), (2.5, (None, 0)))

    def test_file_is_one_body(self):
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(b"\xff\n\nend\n")
        self.assertEqual(self.production("T", "--file", path)[0].messages, [b"\xff\n\nend\n"])
        with open(path, "wb") as file:
            file.truncate((4 << 20) + 1)
        self.assertIn("it is longer than 4194304 bytes", run_main("produce", "T", "--file", path)[2])
        with open(path, "wb"):
            pass
        self.assertIn("it is empty", run_main("produce", "T", "--file", path)[2])
        self.assertIn("No such file or directory", run_main("produce", "T", "--file", path + "x")[2])

    def test_options_may_stand_anywhere(self):
        sent, cluster = self.production("T", "one", "--tags", "A", "-n", "h:1;g:2", "two", "--count=3")
        self.assertEqual((sent.topic, sent.messages), ("T", [b"one", b"two"]))
        self.assertEqual((sent.tags, cluster.namesrv, sent.count), ("A", ["h:1", "g:2"], 3))

    def test_messages_behind_two_dashes_are_not_options(self):
        self.assertEqual(self.production("T", "--", "--tags", "-x")[0].messages, [b"--tags", b"-x"])

    def test_messages_keep_undecodable_bytes(self):
        self.assertEqual(self.production("T", os.fsdecode(b"\xff\xfe"))[0].messages, [b"\xff\xfe"])

    def test_cluster_options_reach_the_client(self):
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("accessKey: me\nsecretKey: secret\n")
        cluster = self.production("T", "x", "--tls", "--credentials", path)[1]
        self.assertEqual((cluster.tls, cluster.ca, cluster.credentials.access_key), (True, None, "me"))
        cluster = self.production("T", "x", "--tls-ca", path)[1]
        self.assertEqual((cluster.tls, cluster.ca), (True, path))
        self.assertEqual(self.production("T", "x", "--tls-unverified")[1].tls, "unverified")

    def test_settings(self):
        options = parsed(up_command, "-o", "brokerName=b", "--option", "flushDiskType=SYNC_FLUSH")
        self.assertEqual(options["overrides"], (("brokerName", "b"), ("flushDiskType", "SYNC_FLUSH")))

    def test_wrong_options_are_refused(self):
        for arguments in (
            ("produce",),
            ("consume",),
            ("consume", "T", "U"),
            ("consume", "T", "--count", "0"),
            ("consume", "T", "--count", "x"),
            ("consume", "T", "--timeout", "-1"),
            ("consume", "T", "--timeout", "nan"),
            ("consume", "T", "--from", "here"),
            ("consume", "T", "--from", "-5x"),
            ("consume", "T", "--from", "1", "--group", "g"),
            ("consume", "T", "--format", "{nonsense}"),
            ("consume", "T", "--format", "{body"),
            ("consume", "T", "--end", "\\q"),
            ("consume", "T", "--format", "{body}", "--json"),
            ("consume", "T", "--namesrv", "nowhere"),
            ("consume", "T", "--nonsense"),
            ("consume", "bad topic"),
            ("groups", "bad group"),
            ("groups", "G", "H"),
            ("consume", "T", "--group", "bad group"),
            ("consume", "T", "--group", ""),
            ("consume", "T", "--group", "组"),
            ("consume", "T", "--tags", "a\x01b"),
            ("lag",),
            ("lag", "bad group"),
            ("lag", "g", "--topic", "bad topic"),
            ("produce", "", "x"),
            ("produce", "bad!", "x"),
            ("produce", "bad!"),
            ("produce", "T", "x", ""),
            ("produce", "T", "x", "--keys", "k a\x02b"),
            ("produce", "T", "x", "--tags", "a\x01b"),
            ("produce", "T", "x", "--property", "a"),
            ("produce", "T", "x", "--property", "KEYS=a"),
            ("produce", "T", "x", "--queue", "b:x"),
            ("produce", "T", "x", "--deliver-after", "1", "--delay-level", "3"),
            ("produce", "T", "x", "--file", "-"),
            ("up", "--broker-port", "65536"),
            ("up", "--namesrv-port", "x"),
            ("up", "--namesrv-port", "9877", "--broker-port", "9877"),
            ("up", "--namesrv-port", "9876", "--broker-port", "9878"),
            ("up", "-o", "brokerName"),
            ("up", "-o", "listenPort=1"),
            ("up", "stray"),
            ("up", "--host", "myhost"),
            ("up", "-o", "bindAddress=127.0.0.1"),
        ):
            status, out, err = run_main(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (arguments, err))

    def test_refusals_name_the_option_and_the_value(self):
        for arguments, text in (
            (("consume", "T", "--count", "0"), "--count '0': accepted is a number from 1 on"),
            (("consume", "T", "--timeout", "nan"), "--timeout 'nan': accepted is a number of seconds above 0"),
            (
                ("consume", "T", "--from", "here"),
                "--from 'here': accepted is earliest, latest, an offset, a time such as 2026-01-31T09:30 or -5m",
            ),
            (
                ("consume", "T", "--format", "{tag}"),
                "--format unknown field {tag}; did you mean tags?; fields are topic, broker, queue, offset, id, tags, "
                "keys, properties, born, stored, retries, size, body, body_base64, properties.NAME",
            ),
            (("consume", "T", "--tag", "A"), "option --tag not recognized; use --tags"),
            (("produce", "T", "x", "--key", "k"), "option --key not recognized; use --keys"),
            (("produce", "T", "x", "--header", "a=b"), "option --header not recognized; use --property"),
            (("produce", "T", "x", "--after", "3"), "option --after not recognized; use --deliver-after"),
            (("consume", "T", "--from-beginning"), "option --from-beginning not recognized; use --from earliest"),
            (("consume", "T", "--bootstrap-server", "x"), "option --bootstrap-server not recognized; use --namesrv"),
            (("consume", "T", "--max-messages", "3"), "option --max-messages not recognized; use --count"),
            (("consume", "T", "--limit", "3"), "option --limit not recognized; use --count"),
            (("consume", "T", "--max", "3"), "option --max not recognized; use --count"),
            (("consume", "T", "--begin", "-1h"), "option --begin not recognized; use --from"),
            (("consume", "T", "--start", "-1h"), "option --start not recognized; use --from"),
            (("produce", "T", "x", "--headers", "a=b"), "option --headers not recognized; use --property"),
            (("consume", "T", "--broker", "b"), "option --broker not recognized"),
            (("lag", "g", "--max-messages", "3"), "option --max-messages not recognized"),
            (("consume", "T", "--partition", "1"), "option --partition not recognized"),
            (("lag", "g", "--tag", "A"), "option --tag not recognized"),
            (("consume", "T", "--cuont", "1"), "option --cuont not recognized; did you mean --count?"),
            (("consume",), "TOPIC is missing"),
            (("lag",), "GROUP is missing"),
            (("up", "--broker-port", "65536"), "--broker-port '65536': accepted is a number from 0 to 65535"),
            (("up", "-o", "brokerName"), "--option 'brokerName': accepted is KEY=VALUE"),
            (("up", "-o", "listenPort=1"), "--option 'listenPort=1': use --namesrv-port or --broker-port"),
        ):
            command = f"rocketd {arguments[0]}"
            self.assertEqual(run_main(*arguments), (2, "", f"{command}: {text}; try {command} --help\n"))
        self.assertIn("topic 'bad topic': ", run_main("consume", "bad topic")[2])
        self.assertIn("--group 'bad group': ", run_main("consume", "T", "-g", "bad group")[2])
        self.assertEqual(
            run_main("prodce")[2],
            "rocketd: there is no command 'prodce'; did you mean produce?; try rocketd --help\n",
        )
        for word, meant in (("sub", "consume"), ("send", "produce"), ("topics", "topic list")):
            text = f"rocketd: there is no command {word!r}; use rocketd {meant}; try rocketd --help\n"
            self.assertEqual(run_main(word), (2, "", text))

    def test_every_word_of_another_tool_leads_to_an_existing_command(self):
        for word, meant in ROCKETD._elsewhere.items():
            first, *rest = meant.split()
            self.assertIn(first, ROCKETD.list_commands(None), word)
            group = ROCKETD.get_command(None, first)
            if isinstance(group, LazyGroup):
                self.assertIn(rest[0], group.list_commands(None), word)


class MainTests(SynchronousTestCase):
    def test_version(self):
        self.assertEqual(run_main("--version"), (0, f"rocketd {rocketd.__version__} ({core.kind()})\n", ""))

    def test_every_command_names_itself_and_our_version(self):
        for command in ("up", "produce", "consume", "lag", "groups", "store", "store dump"):
            status, out, _ = run_main(*command.split(), "--help")
            self.assertEqual((status, out.split(" [")[0].split(" COMMAND")[0]), (0, f"Usage: rocketd {command}"))
            self.assertNotIn("Twisted", out)
            self.assertNotIn("python -m", out)
            version = f"rocketd {rocketd.__version__} ({core.kind()})\n"
            self.assertEqual(run_main(*command.split(), "--version"), (0, version, ""))

    def test_help_of_produce_names_empty_lines(self):
        self.assertIn("Empty lines are skipped", " ".join(run_main("produce", "--help")[1].split()))

    def test_help(self):
        status, out, _ = run_main("--help")
        self.assertEqual(status, 0)
        for command in ("up", "produce", "consume"):
            self.assertIn(command, out)
        status, out, _ = run_main("consume", "--help")
        self.assertEqual(status, 0)
        self.assertIn("--timeout", out)

    def test_wrong_use_is_one_line(self):
        for arguments in ((), ("nonsense",), ("produce",), ("consume", "T", "--count", "0")):
            status, out, err = run_main(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1))
            self.assertTrue(err.startswith("rocketd"), err)


class EndedUpTests(cli_processes.CommandTestCase):
    def test_up_that_ends_during_its_start_fails_with_its_errors(self):
        program = "import sys; print('namesrv x:1\\nbroker x:2'); sys.exit('no more room')"
        self.patch(cli_processes, "COMMAND", [sys.executable, "-c", program])
        with self.assertRaisesRegex(self.failureException, "no more room"):
            self.up()


class CompletionTests(SynchronousTestCase):
    def complete(self, *words):
        environment = {
            "_ROCKETD_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": f"{len(words) - 1}",
        }
        self.patch(os, "environ", {**os.environ, **environment})
        out = TextIOWrapper(BytesIO())
        with redirect_stdout(out):
            self.assertEqual(main([]), 0)
        out.flush()
        lines = out.buffer.getvalue().decode().splitlines()
        return [line.partition(",")[2] for line in lines if line]

    def test_words_of_groups_and_commands_are_completed(self):
        self.assertEqual(self.complete("rocketd", "top"), ["topic"])
        self.assertEqual(self.complete("rocketd", "topic", "cr"), ["create"])
        self.assertEqual(self.complete("rocketd", "offset", "reset", "--dry"), ["--dry-run"])

    def test_unknown_command_completes_to_nothing(self):
        self.assertEqual(self.complete("rocketd", "nonsense", "x"), [])

    def test_script_of_shell_is_printed(self):
        status, out, err = run_main("completion", "fish")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("_ROCKETD_COMPLETE=fish_complete", out)
        self.assertIn("accepted is bash or zsh or fish", run_main("completion", "tcsh")[2])


class LightCommandsTests(SynchronousTestCase):
    def run_program(self, code):
        environment = {**os.environ, "PYTHONPATH": ROOT, "XDG_CONFIG_HOME": self.mktemp()}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, env=environment, check=True, timeout=60, text=True)

    def test_command_without_tls_imports_no_openssl(self):
        ran = self.run_program(
            "import sys; from rocketd.tools.cli import main; status = main(['topic', 'list', '-n', '127.0.0.1:1'])\n"
            "print(status, sorted({'OpenSSL', 'twisted.application.service', 'tomllib'} & set(sys.modules)))"
        )
        self.assertEqual(ran.stdout, "1 []\n")
        self.assertIn("127.0.0.1:1", ran.stderr)

    def test_client_with_tls_finds_openssl_after_the_light_reactor(self):
        ran = self.run_program(
            "import gc, sys; from rocketd.tools.base.light_reactor import light_reactor\n"
            "first = light_reactor(); print('OpenSSL' in sys.modules, gc.isenabled())\n"
            "from twisted.protocols.tls import TLSMemoryBIOFactory; print(light_reactor() is first)"
        )
        self.assertEqual(ran.stdout, "False True\nTrue\n")

    def test_help_of_group_and_contexts_import_no_client(self):
        environment = {**os.environ, "PYTHONPATH": ROOT, "XDG_CONFIG_HOME": self.mktemp()}
        code = "import sys; from rocketd.tools.cli import main; main(['topic', '--help']); main(['context', 'list'])"
        command = [sys.executable, "-c", f"{code}; assert 'twisted.internet' not in sys.modules"]
        subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True, timeout=60)
