"""The broker's own request processors, found by ``twisted.plugin`` as those of third parties are.

Which codes a processor handles is said here and in its module's constants; a unit test compares the two.
"""

from typing import Any

from twisted.python.reflect import namedAny
from zope.interface import implementer

from rocketd.remoting.interfaces import IProcessorPlugin, IRequestProcessor


@implementer(IProcessorPlugin)
class BuiltInProcessor:
    """Describes one processor class; its module is imported when the broker starts."""

    daemon = "broker"

    def __init__(self, name: str, pool: str, codes: tuple[int, ...], path: str) -> None:
        self.name = f"rocketd.broker.{name}"
        self.pool = pool
        self.codes = codes
        self._path = f"rocketd.broker.processors.{path}"

    def create(self, daemon: Any) -> IRequestProcessor:
        """Make the processor."""
        processor: IRequestProcessor = namedAny(self._path)(daemon)
        return processor


send = BuiltInProcessor("send", "send", (10, 310, 320), "send.SendMessageProcessor")
send_back = BuiltInProcessor("send-back", "send", (36,), "send_back.SendBackProcessor")
end_transaction = BuiltInProcessor("end-transaction", "send", (37,), "end_transaction.EndTransactionProcessor")
resume_check = BuiltInProcessor("resume-check", "send", (323,), "end_transaction.ResumeCheckProcessor")
reply = BuiltInProcessor("reply", "reply", (324, 325), "reply.ReplyMessageProcessor")
pull = BuiltInProcessor("pull", "pull", (11, 361), "pull.PullMessageProcessor")
heartbeat = BuiltInProcessor("heartbeat", "heartbeat", (34,), "client_manage.ClientManageProcessor")
client = BuiltInProcessor("client", "client", (35, 46), "client_manage.ClientManageProcessor")
consumer = BuiltInProcessor("consumer", "consumer", (38, 15, 14), "consumer_manage.ConsumerManageProcessor")
query = BuiltInProcessor("query", "query", (12, 33), "query.QueryMessageProcessor")
offset = BuiltInProcessor("offset", "query", (29, 30, 31, 32), "query.QueueOffsetProcessor")
lock = BuiltInProcessor("lock", "admin", (41, 42), "queue_lock.QueueLockProcessor")
admin = BuiltInProcessor("admin", "admin", (17, 215, 21, 200, 207, 201, 25, 26), "admin.AdminBrokerProcessor")
state = BuiltInProcessor(
    "state", "admin", (28, 43, 45, 202, 203, 204, 328, 300, 305), "admin_state.AdminStateProcessor"
)
table_changes = BuiltInProcessor("table-changes", "admin", (30003,), "table_changes.TableChangesProcessor")
lag = BuiltInProcessor("lag", "lag", (30002,), "lag.LagProcessor")
statistics = BuiltInProcessor("statistics", "admin", (208, 303, 308, 315, 317), "statistics.StatisticsProcessor")
client_relay = BuiltInProcessor("client-relay", "admin", (223, 307, 309), "client_relay.ClientRelayProcessor")
offset_reset = BuiltInProcessor("offset-reset", "admin", (222, 314), "offset_reset.OffsetResetProcessor")
clean_up = BuiltInProcessor("clean-up", "send", (306, 316, 329), "clean_up.CleanUpProcessor")
consume_queue = BuiltInProcessor("consume-queue", "query", (321,), "consume_queue.ConsumeQueueProcessor")
acl_config = BuiltInProcessor("acl-config", "admin", (50, 51, 52, 53, 54), "acl_config.AclConfigProcessor")
group_problems = BuiltInProcessor("group-problems", "admin", (30001,), "group_problems.GroupProblemsProcessor")
