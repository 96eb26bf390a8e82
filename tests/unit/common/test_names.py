from twisted.trial.unittest import SynchronousTestCase

from rocketd.common import names, permission, sysflag


class TopicFaultTests(SynchronousTestCase):
    def test_legal_characters_are_accepted(self):
        self.assertIsNone(names.topic_fault("%RETRY%ns%My-Group_1|x"))

    def test_blank_topic_is_refused(self):
        self.assertEqual(names.topic_fault(" "), "The specified topic is blank.")
        self.assertEqual(names.topic_fault(""), "The specified topic is blank.")

    def test_illegal_characters(self):
        remark = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        for topic in ("a b", "ä", "a.b", "a/b", "a\n", "../a", "a\x00", "٣"):
            self.assertEqual(names.topic_fault(topic), remark, topic)

    def test_topic_longer_than_127_is_refused(self):
        self.assertIsNone(names.topic_fault("a" * 127))
        self.assertEqual(names.topic_fault("a" * 128), "The specified topic is longer than topic max length.")


class GroupFaultTests(SynchronousTestCase):
    def test_producer_group_has_at_most_255_characters(self):
        self.assertIsNone(names.group_fault("g" * 255))
        self.assertEqual(names.group_fault("g" * 256), "the group has more than 255 characters")

    def test_consumer_group_has_a_retry_topic_that_can_be_stored(self):
        self.assertIsNone(names.consumer_group_fault("g" * 120))
        self.assertIsNone(names.topic_fault(names.retry_topic("g" * 120)))
        self.assertIsNotNone(names.topic_fault(names.retry_topic("g" * 121)))
        self.assertEqual(
            names.consumer_group_fault("g" * 121),
            "the consumer group has 121 characters, but its retry topic can only be stored if it has at most 120",
        )
        self.assertEqual(names.consumer_group_fault("a b"), names.group_fault("a b"))


class NamingTests(SynchronousTestCase):
    def test_derived_names(self):
        self.assertEqual(names.retry_topic("G"), "%RETRY%G")
        self.assertEqual(names.dlq_topic("G"), "%DLQ%G")
        self.assertEqual(names.reply_topic("DefaultCluster"), "DefaultCluster_REPLY_TOPIC")

    def test_topics_closed_to_senders_are_system_topics(self):
        self.assertLess(names.NOT_ALLOWED_SEND_TOPICS, names.SYSTEM_TOPICS)

    def test_system_groups(self):
        self.assertTrue(names.is_system_group(names.TRANS_GROUP))
        self.assertFalse(names.is_system_group("TOOLS_CONSUMER"))


class PermissionTests(SynchronousTestCase):
    def test_permission_bits_are_tested(self):
        self.assertTrue(permission.is_readable(6))
        self.assertTrue(permission.is_writable(6))
        self.assertFalse(permission.is_inherited(6))
        self.assertFalse(permission.is_writable(4))
        self.assertFalse(permission.is_readable(2))
        self.assertTrue(permission.is_inherited(7))

    def test_permission_text(self):
        self.assertEqual([permission.describe(p) for p in (0, 1, 6, 7, 4)], ["---", "--X", "RW-", "RWX", "R--"])


class SysFlagTests(SynchronousTestCase):
    def test_reset_transaction_value_keeps_other_bits(self):
        flag = sysflag.COMPRESSED | sysflag.BORN_HOST_V6 | sysflag.TRANSACTION_PREPARED
        committed = sysflag.reset_transaction_value(flag, sysflag.TRANSACTION_COMMIT)
        self.assertEqual(committed, 0x1 | 0x10 | 0x8)
        self.assertEqual(sysflag.transaction_value(committed), sysflag.TRANSACTION_COMMIT)
        self.assertEqual(sysflag.reset_transaction_value(committed, sysflag.TRANSACTION_NOT), 0x11)

    def test_topic_flag(self):
        self.assertEqual(sysflag.topic_sys_flag(unit=False, unit_sub=True), 2)
        self.assertEqual(sysflag.topic_sys_flag(unit=True, unit_sub=True), 3)
        self.assertEqual(sysflag.topic_sys_flag(unit=False, unit_sub=False), 0)
