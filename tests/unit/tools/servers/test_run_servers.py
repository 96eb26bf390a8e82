import sys

import click
from twisted.scripts import twistd
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.tap import Options
from rocketd.tools.servers.run_servers import run_broker_command, run_console_command, run_namesrv_command
from tests.unit.tools.test_cli import run_main


class RunTests(SynchronousTestCase):
    def setUp(self):
        self.ran = []
        self.patch(twistd, "run", lambda: self.ran.append(sys.argv[1:]))
        self.patch(sys, "argv", ["rocketd"])

    def test_all_arguments_reach_the_twistd_command(self):
        given = ("-c", "x.conf", "-o", "a=b", "--option=c=d", "--nonsense", "extra", "-pm")
        for name in ("broker", "namesrv", "console"):
            self.assertEqual(run_main(name, "run", *given), (0, "", ""))
            self.assertEqual(self.ran.pop(), ["--nodaemon", "--pidfile=", f"rocketd-{name}", *given])

    def test_log_of_a_unit_has_the_form_of_the_journal(self):
        self.patch(sys.modules["rocketd.tools.servers.run_servers"], "is_journal", lambda environ: True)
        run_main("broker", "run")
        self.assertIn("--logger=rocketd.common.logs.journal.journal_observer", self.ran.pop())

    def test_help_lists_the_options_of_the_twistd_command(self):
        parameters = {(long, short) for long, short, *_ in (*Options.optParameters, *Options.optFlags)}
        for command in (run_broker_command, run_namesrv_command, run_console_command):
            options = [param.opts for param in command.params if isinstance(param, click.Option)]
            declared = {(opts[1].lstrip("-"), opts[0].lstrip("-")) for opts in options if len(opts) == 2}
            self.assertEqual(declared, {*parameters, ("option", "o")})
        status, out, _ = run_main("broker", "run", "-c", "x", "--help")
        self.assertEqual((status, self.ran), (0, []))
        self.assertIn("--print-important", out)
