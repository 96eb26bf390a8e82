"""A real Prometheus scrapes a broker; its tools check the pages and rules that rocketd brings along."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.lacking import end_test_lacking
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.server_processes import ServerProcesses
from tests.support.store_wire import await_condition

RULES = ROOT / "etc" / "prometheus" / "rocketd.rules.yml"
LIMIT = 60.0
MESSAGES = 7
SEND = 310


def program(name):
    path = shutil.which(name)
    if path is None:
        end_test_lacking(f"needs {name}: apt install prometheus")
    return path


def promtool(*arguments, text=""):
    return subprocess.run(
        [program("promtool"), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def fetch(url):
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with metrics, and messages in a topic; (address, port of the metrics)."""
    port = free_port()
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"), metricsPort=str(port))
    try:
        servers.start_namesrv()
        servers.start_broker()
        wire.create_topic(servers.broker_address, "Seen", 1)
        for number in range(MESSAGES):
            fields = {
                "a": "P",
                "b": "Seen",
                "c": "TBW102",
                "d": "1",
                "e": "0",
                "f": "0",
                "g": "1",
                "h": "0",
                "i": "",
                "m": "false",
            }
            assert wire.call(servers.broker_address, SEND, fields, b"%d" % number).code == wire.SUCCESS
        yield servers.broker_address, port
    finally:
        servers.kill_all()


def test_page_passes_the_check_of_promtool(broker):
    _, port = broker
    checked = promtool("check", "metrics", text=fetch(f"http://127.0.0.1:{port}/metrics"))
    # Names of Apache's exporter break some rules of style, and keep their names.
    ours = [line for line in (checked.stdout + checked.stderr).splitlines() if not line.startswith("rocketmq_")]
    assert ours == []


def test_rules_and_configuration_are_valid():
    checked = promtool("check", "config", ROOT / "etc" / "prometheus" / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_metrics_of_rules_and_dashboard_exist(broker):
    _, port = broker
    page = fetch(f"http://127.0.0.1:{port}/metrics")
    known = set(re.findall(r"(?m)^# TYPE (\S+)", page))
    texts = RULES.read_text() + (ROOT / "etc" / "grafana" / "rocketd.json").read_text()
    used = set(re.findall(r"\b(?:rocketd|rocketmq|process)_[a-z_]+", texts))
    # The name of a file and of nothing else looks like a metric; suffixes belong to counters and histograms.
    plain = {re.sub(r"_bucket$", "", name) for name in used}
    assert plain - known == set()


def test_queries_of_dashboards_are_valid(tmp_path):
    boards = sorted((ROOT / "etc" / "grafana").glob("*.json"))
    assert len(boards) == 2
    queries = [
        target["expr"]
        for board in boards
        for panel in json.loads(board.read_text())["panels"]
        for target in panel["targets"]
    ]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))  # JSON is YAML, too
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("series", "values", "at", "alert"),
    [
        ('up{job="rocketd", instance="b"}', "0x10", "3m", "RocketdDown"),
        ('rocketd_messages_refused_total{instance="b"}', "0+10x20", "10m", "RocketdMessagesRefused"),
        ('rocketd_disk_used_ratio{instance="b"}', "0.9x20", "8m", "RocketdDiskFillsUp"),
        ('rocketmq_group_get_latency_by_storetime{topic="T", group="G"}', "900000x20", "8m", "RocketdGroupBehind"),
        ('rocketmq_topic_dlq_offset{group="G"}', "0+1x20", "10m", "RocketdDeadLetters"),
        ('rocketd_slave_behind_bytes{slave="s"}', "999999999x20", "8m", "RocketdSlaveBehind"),
        ('rocketd_limit_reached_total{limit="x"}', "0+10x20", "12m", "RocketdLimitReached"),
    ],
)
def test_alert_fires_on_its_fault_and_not_before(tmp_path, series, values, at, alert):
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "alert_rule_test": [{"eval_time": "0m", "alertname": alert, "exp_alerts": []}],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                ],
            }
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(json.dumps(case))  # JSON is YAML, too
    tested = promtool("test", "rules", path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_prometheus_scrapes_the_broker(broker, tmp_path):
    _, port = broker
    own = free_port()
    config = (ROOT / "etc" / "prometheus" / "prometheus.yml").read_text()
    config = config.replace('"127.0.0.1:9910", "127.0.0.1:9911"', f'"127.0.0.1:{port}"').replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(config.replace("rocketd.rules.yml", str(RULES)))
    running = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "log").open("w"),
        cwd=Path(tmp_path),
    )
    try:
        await_condition("the scraped figure", lambda: stored_by(own) == [str(MESSAGES)])
    finally:
        running.terminate()
        running.wait(LIMIT)


def stored_by(port):
    query = urllib.parse.urlencode({"query": "rocketd_messages_stored_total"})
    try:
        answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?{query}"))
    except OSError:
        return None
    return [result["value"][1] for result in answer["data"]["result"]]
