"""Redriving dead letters, against scripted brokers with an index of unique keys."""

from rocketd.client.consumer.retries.dead_letter_reader import DeadLetterFilter
from rocketd.client.consumer.retries.handler_results import Reject
from rocketd.client.consumer.retries.redrive import Redriver, RedriveResult
from rocketd.client.errors import RocketMQError
from rocketd.client.queries import messages
from rocketd.common.message_properties import decode_properties
from rocketd.common.sysflag import COMPRESSED
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import encode_record
from tests.support.client_cluster import HOST, ClientTestCase, Cluster, damage

DLQ = "%DLQ%cg"
BORN_MS = 1_700_000_000_000
AT_ONCE = 32
"""Number of messages in an answer of a broker."""


def stored(topic, body, properties, place, store_ms=BORN_MS, sys_flag=0):
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    message = MessageInner(topic, 0, 0, sys_flag, BORN_MS, HOST, 0, 0, body, text, 0)
    return encode_record(message, HOST, place, 1000 * place, store_ms)


class LetterCluster(Cluster):
    """One broker. ``letters`` are its dead letters, ``index`` has (time of storing, record) of messages by topic.

    A slave has only the first AT_ONCE dead letters.
    """

    def __init__(self):
        super().__init__(topics=("T", DLQ, "%RETRY%cg"))
        self.brokers.remove("b")
        self.letters = []
        self.index = {}

    def answer_11(self, address, request, fields):
        begin, end = int(fields["queueOffset"]), len(self.letters) if address == "a:10911" else AT_ONCE
        page = self.letters[begin : min(end, begin + int(fields["maxMsgNums"]))]
        header = {
            "suggestWhichBrokerId": "1" if self.slaves else "0",
            "minOffset": "0",
            "maxOffset": str(end),
            "nextBeginOffset": str(begin + len(page)),
        }
        return RemotingCommand.response(0 if page else 19, ext_fields=header, body=b"".join(page))

    def answer_12(self, address, request, fields):
        """Return the newest messages from a time to another. The broker knows the times to the second."""
        begin, end = int(fields["beginTimestamp"]), int(fields["endTimestamp"])
        found = [
            record
            for ms, record in sorted(self.index.get(fields["topic"], ()), reverse=True)
            if begin <= ms // 1000 * 1000 <= end
        ]
        return RemotingCommand.response(0 if found else 22, body=b"".join(found[:AT_ONCE]))

    def answer_310(self, address, request, fields):
        place, ms, properties = 900 + len(self.log), BORN_MS + 60_000 * len(self.log), decode_properties(fields["i"])
        entry = stored(fields["b"], request.body, properties, place, ms, int(fields["f"]))
        self.index.setdefault(fields["b"], []).append((ms, entry))
        return super().answer_310(address, request, fields)


class RedriveTests(ClientTestCase):
    cluster_type = LetterCluster

    def die(self, body=b"wrong", topic="T", key="K", sys_flag=0, **more):
        place = len(self.cluster.letters)
        properties = {"UNIQ_KEY": key, "RETRY_TOPIC": topic, **more}
        self.cluster.letters.append(stored(DLQ, body, properties, place, sys_flag=sys_flag))

    def redrive(self, to="group", **wanted):
        return self.result_of(Redriver(self.client, to).redrive_all("cg", DeadLetterFilter(**wanted)))

    def test_letter_with_unreadable_body_redriven_twice_is_sent_once(self):
        for to in ("group", "topic"):
            with self.subTest(to=to):
                self.setUp()
                self.die(b"torn", sys_flag=COMPRESSED)
                self.assertEqual(self.redrive(to), RedriveResult(1))
                self.assertEqual(self.redrive(to), RedriveResult(0, sent_before=1))
                self.assertEqual(len(self.cluster.log), 1)

    def test_damaged_letter_does_not_hide_the_others(self):
        for key in ("K0", "K1", "K2"):
            self.die(key=key)
        self.cluster.letters[1] = damage(self.cluster.letters[1])
        self.assertEqual(self.redrive(), RedriveResult(2))

    def test_damaged_copy_counts_as_none(self):
        self.die()
        self.redrive("topic")
        ((ms, copy),) = self.cluster.index["T"]
        self.cluster.index["T"] = [(ms, damage(copy))]
        self.assertEqual(self.redrive("topic"), RedriveResult(1))

    def keep(self, number, *, apart_ms):
        """Store later messages with the unique key, as retries do."""
        ms, _ = self.cluster.index["T"][-1]
        for n in range(1, number + 1):
            entry = stored("T", b"x", {"UNIQ_KEY": "K"}, 2000 + n, ms + n * apart_ms)
            self.cluster.index["T"].append((ms + n * apart_ms, entry))

    def test_letter_redriven_before_many_retries_is_sent_once(self):
        self.die()
        self.assertEqual(self.redrive("topic"), RedriveResult(1))
        self.keep(100, apart_ms=90)
        self.assertEqual(self.redrive("topic"), RedriveResult(0, sent_before=1))
        self.die()
        self.assertEqual(self.redrive("topic"), RedriveResult(1, sent_before=1))

    def test_letter_with_more_copies_than_can_be_read_is_not_sent(self):
        self.patch(messages, "MAX_PAGES", 4)
        for number, apart_ms in ((AT_ONCE + 1, 1), (AT_ONCE * 5, 1000)):
            with self.subTest(number=number):
                self.setUp()
                self.die()
                self.assertEqual(self.redrive("topic"), RedriveResult(1))
                self.keep(number, apart_ms=apart_ms)
                redriver = Redriver(self.client, "topic")
                error = self.failure_of(redriver.redrive_all("cg", DeadLetterFilter()), RocketMQError)
                self.assertIn("a:10911 has more messages of topic T with the unique key K", str(error))
                self.assertEqual(len(self.cluster.log), 1)

    def test_letters_that_a_slave_lacks_are_read_from_the_master(self):
        self.cluster.slaves["a"] = {1: "a:10920"}
        for n in range(AT_ONCE + 8):
            self.die(key=f"K{n}")
        self.assertEqual(self.redrive(), RedriveResult(AT_ONCE + 8))
        self.assertIn("a:10920", [address for address, _ in self.cluster.of(11)])

    def test_letter_of_deleted_topic_is_counted_and_later_ones_are_sent(self):
        self.die(topic="Gone", key="K1")
        self.die(key="K2")
        self.assertEqual(self.redrive("topic"), RedriveResult(1, unknown_topic=1))
        self.assertEqual([fields["b"] for fields in self.cluster.log], ["T"])
        self.assertEqual(self.redrive("group"), RedriveResult(2))

    def test_names_of_own_classes_select_letters_with_public_and_internal_names(self):
        internal, public = "rocketd.client.consumer.retries.handler_results.Reject", "rocketd.client.Reject"
        for wanted in (internal, public, "Reject", Reject):
            with self.subTest(wanted=wanted):
                self.setUp()
                for number, name in enumerate((internal, public, "shop.Reject2", "ValueError")):
                    self.die(key=f"K{number}", DEAD_LETTER_EXCEPTION=name)
                self.assertEqual(self.redrive(exception=wanted).sent, 2)
