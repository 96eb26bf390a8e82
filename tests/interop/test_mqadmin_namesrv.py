"""mqadmin's commands about name servers print the same for rocketd and for Apache's in the same state."""

from tests.interop.mqadmin_sides import TOPIC, Both
from tests.interop.mqadmin_text import without_own_settings


def test_get_namesrv_config(both: Both) -> None:
    both.same("getNamesrvConfig", in_any_order=True, change=without_own_settings)


def test_update_namesrv_config(both: Both) -> None:
    assert "success" in both.same("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    both.same("updateTopic", "-b", "BROKER", "-t", "OrderedRoute", "-o", "true", err="No config item")
    assert '"orderTopicConf":"broker-a:8"' in both.same("topicRoute", "-t", "OrderedRoute")
    both.same("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    assert "orderTopicConf" not in both.same("topicRoute", "-t", "OrderedRoute")


def test_update_namesrv_config_refuses_paths(both: Both) -> None:
    both.same("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/nowhere", err="Can not update config")


def test_kv_config(both: Both) -> None:
    both.same("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "Keyed", "-v", "broker-a:1")
    assert "[broker-a:1]" in both.same("updateOrderConf", "-t", "Keyed", "-m", "get")
    both.same("deleteKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "Keyed")
    both.same("updateOrderConf", "-t", "Keyed", "-m", "get", err="No config item")


def test_delete_kv_config_of_no_key(both: Both) -> None:
    both.same("deleteKvConfig", "-s", "Nothing", "-k", "None")


def test_wipe_and_add_write_perm(both: Both) -> None:
    both.same("wipeWritePerm", "-b", "broker-a")
    assert '"perm":4' in both.same("topicRoute", "-t", TOPIC)
    both.same("addWritePerm", "-b", "broker-a")
    assert '"perm":6' in both.same("topicRoute", "-t", TOPIC)


def test_wipe_and_add_write_perm_of_no_broker(both: Both) -> None:
    assert "OK, 0" in both.same("wipeWritePerm", "-b", "no-broker")
    assert "OK, 0" in both.same("addWritePerm", "-b", "no-broker")


def test_a_registration_gives_write_perm_back(both: Both) -> None:
    """Listed in docs/compatibility.md: a changed topic is told alone by Apache's broker, with all others by rocketd."""
    both.same("wipeWritePerm", "-b", "broker-a")
    both.same("updateTopic", "-b", "BROKER", "-t", "AfterWipe")
    assert '"perm":6' in both.same("topicRoute", "-t", "AfterWipe")
    of_apache, of_rocketd = both.each(lambda side: side.mqadmin("topicRoute", "-t", TOPIC)["out"])
    assert '"perm":4' in of_apache
    assert '"perm":6' in of_rocketd
    both.same("addWritePerm", "-b", "broker-a")
    assert '"perm":6' in both.same("topicRoute", "-t", TOPIC)


def test_at_no_name_server(both: Both) -> None:
    both.same("topicList", "-n", "127.0.0.1:1", alone=True, err="connect to [127.0.0.1:1] failed")
