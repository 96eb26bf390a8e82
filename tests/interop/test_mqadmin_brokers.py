"""mqadmin's commands about brokers and clusters print the same for rocketd and for Apache's in the same state."""

import re

from tests.interop.mqadmin_sides import CLUSTER, GROUP, MESSAGES, TOPIC, Both
from tests.interop.mqadmin_text import without_own_figures, without_own_settings, without_rates


def test_cluster_list(both: Both) -> None:
    assert [CLUSTER, "broker-a", "0", "BROKER", "V4_9_7"] in [
        line.split()[:5] for line in both.same("clusterList", change=without_rates).splitlines()
    ]


def test_cluster_list_with_more(both: Both) -> None:
    assert "#InTotalYest" in both.same("clusterList", "-m")


def test_broker_status(both: Both) -> None:
    assert "brokerVersionDesc" in both.same("brokerStatus", "-b", "BROKER", change=without_own_figures)


def test_broker_status_of_a_cluster(both: Both) -> None:
    assert "brokerVersionDesc" in both.same("brokerStatus", "-c", CLUSTER, change=without_own_figures)


def test_broker_status_of_no_broker(both: Both) -> None:
    both.same("brokerStatus", "-b", "127.0.0.1:1", err="connect to 127.0.0.1:1 failed")


def test_get_broker_config(both: Both) -> None:
    both.same("getBrokerConfig", "-b", "BROKER", in_any_order=True, change=without_own_settings)


def test_get_broker_config_of_a_cluster(both: Both) -> None:
    both.same("getBrokerConfig", "-c", CLUSTER, in_any_order=True, change=without_own_settings)


def test_update_broker_config(both: Both) -> None:
    assert "success" in both.same(
        "updateBrokerConfig", "-b", "BROKER", "-k", "maxTransferCountOnMessageInDisk", "-v", "9"
    )
    printed = both.each(lambda side: side.mqadmin("getBrokerConfig", "-b", "BROKER")["out"])
    for side in printed:
        assert re.search(r"maxTransferCountOnMessageInDisk *= *9$", side, re.MULTILINE)
    assert "success" in both.same(
        "updateBrokerConfig", "-c", CLUSTER, "-k", "maxTransferCountOnMessageInDisk", "-v", "8"
    )


def test_send_msg_status(both: Both) -> None:
    printed = both.same("sendMsgStatus", "-b", "broker-a", "-s", "30", "-c", "3", change=_without_times)
    assert printed.count("sendStatus=SEND_OK") == 3


def _without_times(printed: str) -> str:
    """How long a send took."""
    return re.sub(r"rt=\d+ms", "rt=TIME", printed)


def test_cluster_rt(both: Both) -> None:
    # It runs for ever: only an interruption ends it.
    words = ("-a", "3", "-s", "20", "-c", CLUSTER)
    printed = both.same("clusterRT", *words, lines=2, err="InterruptedException", change=_without_mean)
    assert printed.splitlines()[1].split()[-2:] == ["3", "0"]


def _without_mean(printed: str) -> str:
    """How long a send took."""
    return re.sub(r"\d+\.\d\d", "MEAN", printed)


def test_clean_expired_cq(both: Both) -> None:
    assert both.same("cleanExpiredCQ", "-b", "BROKER") == "success"
    assert both.same("cleanExpiredCQ", "-c", CLUSTER) == "success"
    assert both.same("cleanExpiredCQ") == "success"


def test_clean_unused_topic(both: Both) -> None:
    assert both.same("cleanUnusedTopic", "-b", "BROKER") == "success"
    assert both.same("cleanUnusedTopic", "-c", CLUSTER) == "success"


def test_delete_expired_commit_log(both: Both) -> None:
    assert both.same("deleteExpiredCommitLog", "-b", "BROKER") == "success"
    assert both.same("deleteExpiredCommitLog", "-c", CLUSTER) == "success"


def test_broker_consume_stats(both: Both) -> None:
    assert "Diff Total: 0" in both.same("brokerConsumeStats", "-b", "BROKER")


def test_stats_all(both: Both) -> None:
    row = rf"{TOPIC} +{GROUP} +0 +TPS +TPS +{MESSAGES} +{MESSAGES}\b"
    both.become_same("statsAll", wanted=row, in_any_order=True, change=_without_tps)


def test_stats_all_of_a_topic(both: Both) -> None:
    both.become_same("statsAll", "-t", TOPIC, wanted=TOPIC, change=_without_tps)


def test_stats_all_of_active_topics(both: Both) -> None:
    both.become_same("statsAll", "-a", wanted=TOPIC, in_any_order=True, change=_without_tps)


def _without_tps(printed: str) -> str:
    """Hide the messages stored and read per second, in the minute that a broker has just counted."""
    return re.sub(r"\b\d+\.\d\d\b", "TPS", printed)


def test_update_broker_config_changes_permissions_at_once(both: Both) -> None:
    both.same("updateBrokerConfig", "-b", "BROKER", "-k", "brokerPermission", "-v", "4")
    try:
        assert '"perm":4' in both.same("topicRoute", "-t", TOPIC)
    finally:
        both.same("updateBrokerConfig", "-b", "BROKER", "-k", "brokerPermission", "-v", "6")
    assert '"perm":6' in both.same("topicRoute", "-t", TOPIC)


def test_update_broker_config_without_effect(both: Both) -> None:
    """Listed in docs/compatibility.md: Apache's broker accepts changes that have no effect."""
    for key, value in (("brokerConfigPath", "/nowhere"), ("noSuchSetting", "1"), ("fileReservedTime", "abc")):
        words = ("updateBrokerConfig", "-b", "BROKER", "-k", key, "-v", value)
        of_apache, of_rocketd = both.each(lambda side, words=words: side.mqadmin(*words))
        assert of_apache == {"out": "update broker config success, BROKER\n", "err": ""}
        assert of_rocketd["out"] == ""
        assert key in of_rocketd["err"]


def test_update_broker_config_for_the_next_start(both: Both) -> None:
    """Listed in docs/compatibility.md: rocketd prints the value in effect, and the waiting one under a separate key."""
    both.same("updateBrokerConfig", "-b", "BROKER", "-k", "haTransferBatchSize", "-v", "40000")
    of_apache, of_rocketd = both.each(lambda side: side.mqadmin("getBrokerConfig", "-b", "BROKER")["out"])
    values = [re.findall(r"^(\S*haTransferBatchSize) *= *(\d+)", side, re.M) for side in (of_apache, of_rocketd)]
    assert values[0] == [("haTransferBatchSize", "40000")]
    waits = ("rocketd.pending.haTransferBatchSize", "40000")
    assert sorted(values[1]) == [("haTransferBatchSize", "32768"), waits]


def test_broker_consume_stats_of_ordered_topics_and_of_groups_behind(both: Both) -> None:
    assert "Diff Total: 0" in both.same("brokerConsumeStats", "-b", "BROKER", "-o", "true", "-t", "9000")
    assert GROUP not in both.same("brokerConsumeStats", "-b", "BROKER", "-l", "1")


def test_cluster_rt_as_a_log(both: Both) -> None:
    words = ("-a", "2", "-s", "20", "-p", "true", "-m", "room")
    printed = both.same("clusterRT", *words, lines=1, err="InterruptedException", change=_without_log_time)
    assert "|room|DefaultCluster|broker-a|" in printed


def _without_log_time(printed: str) -> str:
    """When the sends were made, and how long they took in the mean."""
    return re.sub(r"^TIME(\|.*\|)\d+$", r"\1MEAN", printed, flags=re.MULTILINE)


def test_cluster_list_again_and_again(both: Both) -> None:
    printed = both.same("clusterList", "-i", "1", lines=4, err="InterruptedException", change=without_rates)
    assert printed.count(CLUSTER) == 2
