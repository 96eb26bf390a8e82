"""The arguments shared by jobs, and their translation to options of the data source."""

from rocketd.common.command_line.option_types import key_value
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.running.options import Alternatives, Arguments, Section, flag, option
from rocketd.spark.sessions.confs import DEFAULT_MASTER


def spark_section() -> Section:
    """Return the options about Spark itself."""
    return Section(
        "Spark",
        [
            option(
                "--master",
                metavar="MASTER",
                default=DEFAULT_MASTER,
                help=f"Spark master: local[N], spark://HOST:PORT, yarn (default: {DEFAULT_MASTER})",
            ),
            option("--driver-memory", metavar="SIZE", help="memory of the driver's Java, for example 4g"),
            option(
                "--conf",
                multiple=True,
                metavar="KEY=VALUE",
                type=key_value,
                help="setting of Spark; repeatable",
            ),
            option(
                "--py-files", multiple=True, metavar="FILE", help="zip or module to ship besides rocketd; repeatable"
            ),
        ],
    )


def output_section() -> Section:
    """Return the options about the output."""
    return Section(
        "output",
        [
            flag("--json", help="print the report as JSON"),
            option("--report", metavar="FILE", help="also write the report as JSON to this file"),
            flag("--quiet", help="print neither progress bar nor notes"),
            flag("--debug", help="also print the traceback of a failure"),
        ],
    )


def source_section(*, positions: bool = True, archive: bool = False) -> Section:
    """Return the options about the source of messages.

    `positions` adds options for a start and an end, `archive` adds an archive as a source.
    """
    options = [
        option("--store", metavar="DIR", help="directory of a broker's store"),
        option("--namesrv", metavar="HOST:PORT", help="name servers of a cluster, separated by semicolons"),
    ]
    if archive:
        options.append(option("--archive", metavar="DIR", help="archive of whole messages"))
    options += [
        option("--commit-log", metavar="DIR", help="directory of the commit log, if it is outside the store"),
        option("--broker-name", metavar="NAME", help="name of the broker; a store's files do not have it"),
        option("--topic", multiple=True, metavar="NAME", help="topic to read; repeatable"),
        option("--topic-pattern", metavar="REGEX", help="regular expression of the whole names of topics to read"),
    ]
    if positions:
        options += [
            option("--from", "from_", metavar="WHERE", help="start: earliest, group:NAME, a time, or offsets as JSON"),
            option("--until", "to", metavar="WHERE", help="end: latest, a time, or offsets as JSON"),
        ]
    options += [
        option(
            "--credentials",
            metavar="FILE",
            help="YAML file with accessKey and secretKey, like mqadmin's conf/tools.yml",
        ),
        flag("--tls", help="connect with TLS"),
        option("--tls-ca", metavar="FILE", help="CA certificates (PEM) for checking the servers"),
        option("--tls-cert", metavar="FILE", help="certificate of the client (PEM)"),
        option("--tls-key", metavar="FILE", help="private key of the client (PEM)"),
        option("--option", multiple=True, metavar="NAME=VALUE", type=key_value, help="further read option; repeatable"),
    ]
    sources = ("--store", "--namesrv", "--archive") if archive else ("--store", "--namesrv")
    return Section(
        "source", options, [Alternatives(sources, required=True), Alternatives(("--topic", "--topic-pattern"))]
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


def source_options(args: Arguments) -> dict[str, str]:
    """Return the read options for the arguments of `source_section`. Raises OptionError.

    Without a topic argument, no topic is named: a job that reads all topics adds a pattern.
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
"""Arguments that do not apply to an archive. Those about the connection do: they serve the target cluster."""


def check_archive_arguments(args: Arguments) -> None:
    """Raise OptionError for an argument that does not apply to the given archive."""
    for field in _NOT_OF_ARCHIVES:
        if getattr(args, field, None):
            name = {"from_": "from", "to": "until"}.get(field, field.replace("_", "-"))
            raise OptionError(f"--{name} goes with --store or --namesrv: of an archive, --topic selects")


def _position_option(end: str, text: str) -> str:
    words = ("earliest", "latest")
    if text.lower() in words or text.startswith(("group:", "{")):
        return f"{end}Offsets"
    return f"{end}Timestamp"
