"""mqadmin's commands about topics print the same for rocketd and for Apache's broker in the same state."""

from tests.interop.mqadmin_sides import CLUSTER, GROUP, QUEUES, TOOLS, TOPIC, Both, message


def test_topic_list(both: Both) -> None:
    assert TOPIC in both.same("topicList", in_any_order=True).split()


def test_topic_list_after_long_command_at_one_side_is_the_same(both: Both) -> None:
    both.rocketd.driver.ask("announce", group=TOOLS, topic=TOPIC)
    assert f"%RETRY%{TOOLS}" in both.same("topicList", in_any_order=True).split()


def test_topic_list_with_groups(both: Both) -> None:
    printed = both.same("topicList", "-c", in_any_order=True)
    assert [CLUSTER, TOPIC, GROUP] in [line.split() for line in printed.splitlines()]


def test_topic_route(both: Both) -> None:
    assert '"brokerName":"broker-a"' in both.same("topicRoute", "-t", TOPIC)


def test_topic_route_as_a_list(both: Both) -> None:
    assert "Total:" in both.same("topicRoute", "-t", TOPIC, "-l")


def test_topic_route_of_no_topic(both: Both) -> None:
    both.same("topicRoute", "-t", "Nowhere", err="No topic route info")


def test_topic_status(both: Both) -> None:
    assert len(both.same("topicStatus", "-t", TOPIC).splitlines()) == 1 + QUEUES


def test_topic_status_of_no_topic(both: Both) -> None:
    both.same("topicStatus", "-t", "Nowhere", err="No topic route info")


def test_topic_cluster_list(both: Both) -> None:
    assert both.same("topicClusterList", "-t", TOPIC).split() == [CLUSTER]


def test_update_topic_creates_at_a_broker(both: Both) -> None:
    printed = both.same("updateTopic", "-b", "BROKER", "-t", "OfOneBroker", "-r", "3", "-w", "5", "-p", "4")
    assert "readQueueNums=3, writeQueueNums=5, perm=R--" in printed
    assert '"perm":4' in both.same("topicRoute", "-t", "OfOneBroker")


def test_update_topic_changes_it(both: Both) -> None:
    both.same("updateTopic", "-c", CLUSTER, "-t", "Changed", "-r", "2", "-w", "2")
    assert "writeQueueNums=6" in both.same("updateTopic", "-c", CLUSTER, "-t", "Changed", "-r", "6", "-w", "6")
    assert len(both.same("topicStatus", "-t", "Changed").splitlines()) == 1 + 6


def test_update_topic_ordered_at_a_broker(both: Both) -> None:
    # It looks first for an existing topic, and prints that there is none.
    words = ("-b", "BROKER", "-t", "OrderedHere", "-o", "true")
    printed = both.same("updateTopic", *words, err="No config item, Namespace: ORDER_TOPIC_CONFIG Key: OrderedHere")
    assert "set broker orderConf. isOrder=true, orderConf=[broker-a:8]" in printed
    assert "orderConf=[broker-a:8]" in both.same("updateOrderConf", "-t", "OrderedHere", "-m", "get")


def test_update_topic_ordered_in_a_cluster(both: Both) -> None:
    printed = both.same("updateTopic", "-c", CLUSTER, "-t", "OrderedThere", "-o", "true", "-w", "3")
    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:3]" in printed


def test_update_topic_of_a_unit(both: Both) -> None:
    assert "topicSysFlag=3" in both.same("updateTopic", "-b", "BROKER", "-t", "Unit", "-u", "true", "-s", "true")
    assert '"topicSysFlag":3' in both.same("topicRoute", "-t", "Unit")


def test_update_topic_refuses_a_system_topic(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "SCHEDULE_TOPIC_XXXX", err="is conflict with system topic")


def test_update_topic_refuses_a_bad_name(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "no/topic", err="contains illegal characters")


def test_update_topic_at_no_broker(both: Both) -> None:
    both.same("updateTopic", "-b", "127.0.0.1:1", "-t", "Nowhere", err="connect to 127.0.0.1:1 failed")


def test_update_topic_in_no_cluster(both: Both) -> None:
    assert "Make sure the specified clusterName exists" in both.same("updateTopic", "-c", "NoCluster", "-t", "Nowhere")


def test_update_topic_perm(both: Both) -> None:
    both.same("updateTopic", "-c", CLUSTER, "-t", "Perm", "-r", "2", "-w", "2")
    assert "from 6 to 4 in BROKER success" in both.same("updateTopicPerm", "-b", "BROKER", "-t", "Perm", "-p", "4")
    assert "equals to the old one" in both.same("updateTopicPerm", "-b", "BROKER", "-t", "Perm", "-p", "4")
    assert "from 4 to 2 in BROKER success" in both.same("updateTopicPerm", "-c", CLUSTER, "-t", "Perm", "-p", "2")
    assert '"perm":2' in both.same("topicRoute", "-t", "Perm")


def test_update_topic_perm_of_another_broker(both: Both) -> None:
    assert "broker not exit" in both.same("updateTopicPerm", "-b", "127.0.0.1:1", "-t", TOPIC, "-p", "4")


def test_update_order_conf(both: Both) -> None:
    both.same("updateTopic", "-c", CLUSTER, "-t", "Conf")
    both.same("updateOrderConf", "-t", "Conf", "-m", "get", err="No config item")
    both.same("updateOrderConf", "-t", "Conf", "-m", "put", "-v", "broker-a:4;broker-b:2")
    assert "[broker-a:4;broker-b:2]" in both.same("updateOrderConf", "-t", "Conf", "-m", "get")
    both.same("updateOrderConf", "-t", "Conf", "-m", "delete")
    both.same("updateOrderConf", "-t", "Conf", "-m", "get", err="No config item")


def test_allocate_mq(both: Both) -> None:
    assert '"queueId":3' in both.same("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2")


def test_delete_topic(both: Both) -> None:
    both.same("updateTopic", "-c", CLUSTER, "-t", "Gone")
    both.send("basic-producers", [message("Gone", number) for number in range(4)])
    assert "from NameServer success" in both.same("deleteTopic", "-c", CLUSTER, "-t", "Gone")
    both.same("topicRoute", "-t", "Gone", err="No topic route info")
    # Created again, it has nothing of the former topic.
    both.same("updateTopic", "-c", CLUSTER, "-t", "Gone", "-r", "2", "-w", "2")
    printed = both.same("topicStatus", "-t", "Gone")
    assert [line.split()[1:4] for line in printed.splitlines()[1:]] == [["0", "0", "0"], ["1", "0", "0"]]


def test_delete_topic_of_missing_topic(both: Both) -> None:
    both.same("deleteTopic", "-c", CLUSTER, "-t", "NeverMade")


def test_delete_topic_refuses_a_system_topic(both: Both) -> None:
    both.same("deleteTopic", "-c", CLUSTER, "-t", "TBW102", err="is conflict with system topic")


def test_update_topic_with_other_permissions(both: Both) -> None:
    for perm in ("0", "1", "3", "7"):
        both.same("updateTopic", "-b", "BROKER", "-t", f"Perm{perm}", "-p", perm)
        both.same("topicRoute", "-t", f"Perm{perm}")


def test_update_topic_with_odd_names(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "x" * 127)
    both.same("updateTopic", "-b", "BROKER", "-t", "x" * 128, err="CODE: 1")
    both.same("updateTopic", "-b", "BROKER", "-t", "%RETRY%of-nobody")
    both.same("updateTopic", "-b", "BROKER", "-t", "rmq_sys_mine", err="conflict with system topic")


def test_updated_topic_without_queues(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "NoQueues", "-r", "0", "-w", "0")
    both.same("topicStatus", "-t", "NoQueues", err="Not found the topic stats info")


def test_topic_status_of_an_old_topic_with_fewer_queues(both: Both) -> None:
    both.same("updateTopic", "-b", "BROKER", "-t", "Shrunk", "-r", "4", "-w", "4")
    both.send("basic-producers", [message("Shrunk", number) for number in range(8)])
    both.same("updateTopic", "-b", "BROKER", "-t", "Shrunk", "-r", "2", "-w", "2")
    both.same("topicStatus", "-t", "Shrunk")
    both.same("printMsg", "-t", "Shrunk")
