"""``rocketd doctor``: find faults of this machine, of a broker's settings and store, and of a cluster."""

from collections.abc import Sequence

import click

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.option_types import key_value, whole_number
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.base.cluster import ClusterAccess, cluster_options, run_client_command
from rocketd.tools.doctor.bundle import write_bundle
from rocketd.tools.doctor.cluster import ExaminedBroker, look_at_cluster
from rocketd.tools.doctor.findings import DoctorFinding, show_findings
from rocketd.tools.doctor.local import judge_machine, judge_store, load_settings
from rocketd.tools.doctor.machine import MachineFacts, read_machine
from rocketd.tools.doctor.security import judge_security


@command("doctor")
@click.option("-c", "--config", metavar="FILE", help="Settings file of the broker of this machine.")
@click.option(
    "-o",
    "--option",
    "overrides",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of this broker, before those of the file. May be repeated.",
)
@click.option("--local", is_flag=True, help="Look at this machine alone, and ask no server.")
@click.option(
    "--max-behind",
    type=whole_number(0),
    default="10000",
    show_default=True,
    metavar="N",
    help="Messages that a sound consumer group may be behind.",
)
@click.option(
    "--bundle",
    metavar="FILE",
    help="Write a new file for those who help (tar, gzip): findings, settings, states of brokers, ends of the log files. "
    "Secrets are masked; names of topics, groups and hosts are not.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each finding as one line of JSON.")
@cluster_options
def doctor_command(
    cluster: ClusterAccess,
    config: str | None,
    overrides: Sequence[tuple[str, str]],
    local: bool,
    max_behind: int,
    bundle: str | None,
    as_json: bool,
) -> int:
    """Print a line for each fault, with the next step: level, subject, finding and remedy.

    On this machine: limits, Python, the clock. With --config also the settings, the disks, the store and the secrets of a
    broker, whether it runs or not; run the command as its user. In the cluster, unless --local is given: name servers that
    differ, brokers that cannot be reached from here, masters that are missing, versions, disks, clocks, slaves and
    consumer groups.

    Nothing is changed. The exit status is 1 if a finding has the level "wrong", else 0. A "note" does not change it.
    """
    facts = read_machine()
    settings, findings = _look_here(facts, config, overrides)

    def finish(findings: Sequence[DoctorFinding], members: Sequence[ExaminedBroker]) -> int:
        if bundle is not None:
            write_bundle(bundle, facts, settings, findings, members)
        return show_findings(findings, as_json=as_json)

    async def look(reactor: IReactor) -> int:
        async with cluster.client(reactor) as client:
            found, members = await look_at_cluster(client, max_behind)
        return finish([*findings, *found], members)

    return finish(findings, []) if local else run_client_command(look)


def _look_here(
    facts: MachineFacts, config: str | None, overrides: Sequence[tuple[str, str]]
) -> tuple[BrokerSettings | None, list[DoctorFinding]]:
    """Return the settings of this machine's broker, None without usable ones, and the findings."""
    findings = list(judge_machine(facts))
    if config is None and not overrides:
        return None, findings
    settings, faults = load_settings(config, overrides)
    findings += faults
    if settings is not None:
        findings += judge_store(settings, facts)
        findings += judge_security(settings, facts)
    return settings, findings
