"""The arguments that jobs have in common, and the options of the data source that they stand for."""

import argparse

from rocketd.spark.errors import OptionError
from rocketd.spark.sessions.confs import DEFAULT_MASTER

_PAIR = "NAME=VALUE"


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Where Spark runs, and how."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        default=DEFAULT_MASTER,
        help="where it runs: local[N], spark://HOST:PORT, yarn (default: %(default)s)",
    )
    group.add_argument("--driver-memory", metavar="SIZE", help="memory of the driver's Java, as 4g")
    group.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", type=pair, help="a setting of Spark's; repeatable"
    )
    group.add_argument(
        "--py-files",
        action="append",
        default=[],
        metavar="FILE",
        help="a zip or module to ship; repeatable (rocketd is)",
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """What is shown."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the report as JSON")
    group.add_argument("--report", metavar="FILE", help="write the report as JSON into this file as well")
    group.add_argument("--quiet", action="store_true", help="no progress bar, no notes")
    group.add_argument("--debug", action="store_true", help="print the trace of a failure, too")


def add_source_arguments(parser: argparse.ArgumentParser, *, positions: bool = True, archive: bool = False) -> None:
    """Where messages are read; `positions` tells whether a start and an end can be named, `archive` whether an archive of
    ours will do.
    """
    group = parser.add_argument_group("source")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument("--store", metavar="DIR", help="directory of a broker's store")
    where.add_argument("--namesrv", metavar="HOST:PORT", help="name servers of a cluster, separated by semicolons")
    if archive:
        where.add_argument("--archive", metavar="DIR", help="an archive of whole messages")
    group.add_argument(
        "--commit-log", metavar="DIR", help="directory of the commit log, where it is not below the store"
    )
    group.add_argument("--broker-name", metavar="NAME", help="the broker's name, which a store's files do not hold")
    topics = group.add_mutually_exclusive_group()
    topics.add_argument("--topic", action="append", default=[], metavar="NAME", help="topic to read; repeatable")
    topics.add_argument("--topic-pattern", metavar="REGEX", help="read each topic whose whole name matches")
    if positions:
        group.add_argument(
            "--from", dest="from_", metavar="WHERE", help="earliest, group:NAME, a time, or offsets as JSON"
        )
        group.add_argument("--until", dest="to", metavar="WHERE", help="latest, a time, or offsets as JSON")
    group.add_argument(
        "--credentials", metavar="FILE", help="YAML file with accessKey and secretKey, as mqadmin's conf/tools.yml"
    )
    group.add_argument("--tls", action="store_true", help="connect with TLS")
    group.add_argument("--tls-ca", metavar="FILE", help="certificates that the server's is checked against")
    group.add_argument("--tls-cert", metavar="FILE", help="our certificate")
    group.add_argument("--tls-key", metavar="FILE", help="its private key")
    group.add_argument(
        "--option", action="append", default=[], metavar=_PAIR, type=pair, help="any other read option; repeatable"
    )


_PLAIN = {
    "store": "store",
    "namesrv": "namesrv",
    "commit_log": "commitLog",
    "broker_name": "brokerName",
    "topic_pattern": "subscribePattern",
    "credentials": "credentialsFile",
    "tls_ca": "tlsCaFile",
    "tls_cert": "tlsCertFile",
    "tls_key": "tlsKeyFile",
}


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """The data source's read options for the arguments of `add_source_arguments`. Raises OptionError.

    No topic is named where none was given: a job that reads all of them adds a pattern.
    """
    options = {name: getattr(args, field) for field, name in _PLAIN.items() if getattr(args, field)}
    if args.tls:
        options["tls"] = "true"
    if args.topic:
        options["subscribe"] = ",".join(args.topic)
    for end, text in (("starting", getattr(args, "from_", None)), ("ending", getattr(args, "to", None))):
        if text:
            options[_position_option(end, text)] = text
    for name, value in args.option:
        if name in options:
            raise OptionError(f"option {name} was given twice: by its own argument and by --option")
        options[name] = value
    return options


_NOT_OF_ARCHIVES = ("commit_log", "broker_name", "topic_pattern", "from_", "to", "option")
"""What says how to reach a cluster is of use for the one that is sent to."""


def check_archive_arguments(args: argparse.Namespace) -> None:
    """Raise OptionError for an argument that says nothing of an archive, with which it was given."""
    for field in _NOT_OF_ARCHIVES:
        if getattr(args, field, None):
            name = {"from_": "from", "to": "until"}.get(field, field.replace("_", "-"))
            raise OptionError(f"--{name} goes with --store or --namesrv: of an archive, --topic selects")


def _position_option(end: str, text: str) -> str:
    words = ("earliest", "latest")
    if text.lower() in words or text.startswith(("group:", "{")):
        return f"{end}Offsets"
    return f"{end}Timestamp"


def pair(text: str) -> tuple[str, str]:
    """Read NAME=VALUE. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not {_PAIR}")
    return name.strip(), value
