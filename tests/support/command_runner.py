"""Runs commands of the command line in this process, with the client of an open Admin: no command starts a process."""

import sys
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from unittest.mock import patch

import click
from click.globals import pop_context, push_context

from rocketd.client.sync import Admin
from rocketd.common.command_line.errors import CommandError
from rocketd.tools.base import cluster
from rocketd.tools.cli import main


class CommandRunner:
    """Runs commands with the client of ``admin``, so their options of the cluster are not looked at."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def run(self, *words: str) -> tuple[int, list[str], list[str]]:
        """Run a command; return its status and the lines of its two outputs."""
        out, err = TextIOWrapper(BytesIO(), "utf-8"), StringIO()
        with (
            patch.object(cluster, "run_command", self._run_command),
            patch.object(cluster, "show_log", lambda level: None),
            patch.object(cluster.ClusterAccess, "client", self._client),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status = main(words)
            sys.stdout.flush()
        return status, out.buffer.getvalue().decode().splitlines(), err.getvalue().splitlines()

    def ok(self, *words: str) -> list[str]:
        """Run a command that must succeed in silence; return the lines of its output."""
        status, lines, err = self.run(*words)
        assert (status, err) == (0, []), (words, status, err)
        return lines

    def told(self, *words: str) -> tuple[list[str], str]:
        """Run a command that must succeed with one line on standard error; return both outputs."""
        status, lines, err = self.run(*words)
        assert (status, len(err)) == (0, 1), (words, status, err)
        return lines, err[0].partition(": ")[2]

    def refused(self, *words: str, status: int = 1) -> str:
        """Run a command that must fail with one line, and return the line without the name of the command."""
        found, _, err = self.run(*words)
        assert (found, len(err)) == (status, 1), (words, found, err)
        name, _, text = err[0].partition(": ")
        assert name == f"rocketd {words[0]} {words[1]}", err
        return text

    def _client(self, *_):
        @asynccontextmanager
        async def client():
            yield self._admin._engine.instance

        return client()

    def _run_command(self, command, expected, _reactor):
        context, host = click.get_current_context(), self._admin._host

        async def run():
            push_context(context)  # for the name of the command in complaints; contexts belong to threads
            try:
                return await command(host.reactor)
            finally:
                pop_context()

        try:
            return host.call(run)
        except expected as error:
            raise CommandError(str(error)) from error
