"""What the options of the console script's commands have in common.

Answers to MQAdminStartup's and the commands' option handling.
"""

import getopt
from collections.abc import Sequence
from typing import Any, ClassVar

from twisted.python import usage
from twisted.python.reflect import accumulateClassList

from rocketd.acl.credentials import Credentials, read_credentials
from rocketd.acl.errors import AclFileError
from rocketd.client.config import ClientConfig
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.checks import ADDRESSES, is_address_list
from rocketd.common.command_line import CommandLine
from rocketd.remoting.interfaces import IRPCHook


class CommandOptions(CommandLine):
    """Options that may also stand behind the arguments, as users of other tools expect. ``--`` ends them.

    A default is written as on the command line, and read the same way.
    """

    def __init__(self) -> None:
        super().__init__()
        parameters: list[list[Any]] = []
        accumulateClassList(type(self), "optParameters", parameters)
        for name, _, default, _, *read in parameters:
            if read and default is not None:
                self[name] = read[0](default)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse the arguments in any order. Raises UsageError."""
        try:
            given, arguments = getopt.gnu_getopt(list(options or ()), self.shortOpt, self.longOpt)
        except getopt.error as error:
            raise usage.UsageError(str(error)) from None
        super().parseOptions(
            [*(text for name, value in given for text in self._written(name, value)), "--", *arguments]
        )

    def _written(self, name: str, value: str) -> list[str]:
        if name.startswith("--"):
            return [f"{name}={value}" if name[2:] + "=" in self.longOpt else name]
        return [name, value] if name[1] + ":" in self.shortOpt else [name]


def name_server_list(text: str) -> list[str]:
    """Read addresses separated by semicolons. Raises UsageError when one is no ``host:port``."""
    if not is_address_list(text):
        raise usage.UsageError(f"{text!r} is no list of name servers: accepted is {ADDRESSES}")
    return [part.strip() for part in text.rstrip("; ").split(";")]


def positive(text: str) -> int:
    """Read a number from 1 on. Raises UsageError for anything else."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise usage.UsageError(f"{text!r}: accepted is a number from 1 on")
    return int(text)


def port(text: str) -> int:
    """Read a port, or 0. Raises UsageError for anything else."""
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise usage.UsageError(f"{text!r} is no port: accepted is a number from 0 to 65535")
    return int(text)


def seconds(text: str) -> float:
    """Read a time. Raises UsageError for anything but a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise usage.UsageError(f"{text!r}: accepted is a number of seconds above 0")
    return value


def credentials(path: str) -> Credentials:
    """Read what to sign with. Raises UsageError when the file is none of that."""
    try:
        return read_credentials(path)
    except AclFileError as error:
        raise usage.UsageError(str(error)) from None


class ClientOptions(CommandOptions):
    """Options of the commands that connect to a cluster."""

    optParameters: ClassVar[list[list[Any]]] = [
        ["namesrv", "n", "127.0.0.1:9876", "Name servers, HOST:PORT separated by semicolons.", name_server_list],
        ["credentials", None, None, "File with accessKey and secretKey to sign with, as conf/tools.yml.", credentials],
    ]
    optFlags: ClassVar[list[list[Any]]] = [  # noqa: N815 - the name is Twisted's
        ["tls", None, "Encrypt the connections; every server is believed."],
    ]

    def make_client(self, reactor: Any, hooks: Sequence[IRPCHook] = ()) -> ClientInstance:
        """Make the client that the options describe; ``hooks`` see its requests and their answers."""
        config = ClientConfig(
            namesrv=self["namesrv"], tls=bool(self["tls"]), credentials=self["credentials"], hooks=hooks
        )
        return ClientInstance(reactor, config)
