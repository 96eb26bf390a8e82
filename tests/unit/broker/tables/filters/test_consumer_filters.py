"""Filters of groups: registration, leaving and returning, the file, and bitmaps."""

import os
import shutil
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.filters.consumer_filter_file import ConsumerFilterWrapper
from rocketd.broker.tables.filters.consumer_filters import ConsumerFilterManager
from rocketd.broker.tables.filters.expression_filter import ConsumerFilter, RetryFilter
from rocketd.filter.bloom import is_hit
from rocketd.filter.selector import Selector
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.format.message import DispatchRequest
from tests.support.places import GOLDEN

APACHES = GOLDEN / "config" / "consumerFilter-4.9.7.json"
START = 1_795_286_100_000
DAY = 24 * 3600


def sql(expression, version=1, topic="T", kind="SQL92"):
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


def request(properties, topic="T"):
    return DispatchRequest(topic, 0, 0, 100, 0, START, 0, (), 0, 0, properties)


class ManagerTestCase(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.clock.advance(START / 1000)
        self.path = os.path.join(self.mktemp(), "config", "consumerFilter.json")
        self.filters = self.manager()

    def manager(self, **settings):
        file = JsonFile(self.path, ConsumerFilterWrapper, RealFileSystem())
        return ConsumerFilterManager(BrokerConfig(**settings), file, lambda: int(self.clock.seconds() * 1000))

    def state(self, topic="T", group="G"):
        known = self.filters.get(topic, group)
        return known and (known.expression, known.client_version, known.is_dead)


class RegisterTests(ManagerTestCase):
    def test_tag_and_empty_expressions_are_not_filters(self):
        self.filters.register_group("G", [sql("a = 1", kind="TAG"), sql("", topic="U"), sql("x", kind="", topic="V")])
        self.assertEqual([self.state(topic) for topic in "TUV"], [None] * 3)

    def test_sql_expression_is_registered(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        known = self.filters.get("T", "G")
        self.assertEqual((known.born_time, known.client_version, known.dead_time), (START, 7, 0))
        self.assertEqual((list(known.positions), known.bits), (self.filters.bloom.positions("G#T"), 112))
        self.assertTrue(known.matches(b"a\x011"))
        self.assertFalse(known.matches(b"a\x012"))
        self.assertIsNone(self.state(group="H"))

    def test_ignored_rest_of_expression_is_logged_once(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.filters.register_group("G", [sql("price > 1 AND region LIKE 'n%'", 1), sql("a = 1 -- all\n", topic="U")])
        for version in (1, 2):
            self.filters.register_group("G", [sql("price > 1 AND region LIKE 'n%'", version)])
        warnings = [formatEvent(event) for event in events if event.get("log_level") == LogLevel.warn]
        self.assertEqual(
            warnings,
            [
                "group G: only the first part of its filter of T is used, 'price > 1 AND region'; "
                "the rest is ignored: \"LIKE 'n%'\""
            ],
        )

    def test_partly_read_expressions_are_logged_with_throttle(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        for version in range(50):
            self.filters.register_group("G", [sql(f"price > {version} AND region LIKE 'n%'", version)])
        warnings = [event for event in events if event.get("log_level") == LogLevel.warn]
        self.assertEqual(len(warnings), 1)

    def test_newer_version_only_changes_filter(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.clock.advance(5)
        for version in (6, 7):
            self.filters.register_group("G", [sql("a = 2", version)])
            self.assertEqual(self.state(), ("a = 1", 7, False))
        self.filters.register_group("G", [sql("a = 1", 8)])
        self.assertEqual((self.state(), self.filters.get("T", "G").born_time), (("a = 1", 8, False), START))
        self.filters.register_group("G", [sql("a = 2", 9)])
        self.assertEqual((self.state(), self.filters.get("T", "G").born_time), (("a = 2", 9, False), START + 5000))

    def test_malformed_new_expression_removes_filter(self):
        self.filters.register_group("G", [sql("a >", 1)])
        self.assertIsNone(self.state())
        self.filters.register_group("G", [sql("a > 1", 2)])
        self.filters.register_group("G", [sql("a >", 2)])
        self.assertEqual(self.state(), ("a > 1", 2, False))
        self.filters.register_group("G", [sql("a >", 3)])
        self.assertIsNone(self.state())
        self.assertEqual(len(self.flushLoggedErrors()), 0)

    def test_filter_of_leaving_and_returning_group(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.filters.register_group("H", [sql("a = 1", 7)])
        self.clock.advance(1)
        self.filters.unregister("G")
        self.assertEqual((self.state(), self.state(group="H")), (("a = 1", 7, True), ("a = 1", 7, False)))
        self.clock.advance(1)
        self.filters.unregister("G")
        self.assertEqual(self.filters.get("T", "G").dead_time, START + 1000)
        self.filters.register_group("G", [sql("a = 1", 6)])
        self.assertTrue(self.filters.get("T", "G").is_dead)
        for version in (7, 8):
            self.filters.register_group("G", [sql("a = 1", version)])
            self.assertEqual(self.state(), ("a = 1", version, False))
            self.assertEqual(self.filters.get("T", "G").born_time, START)
            self.filters.unregister("G")

    def test_filter_of_unsubscribed_topic_is_dead(self):
        self.filters.register_group("G", [sql("a = 1"), sql("a = 1", topic="U")])
        self.clock.advance(1)
        self.filters.register_group("G", [sql("a = 1", topic="U"), sql("*", kind="TAG", topic="V")])
        self.assertEqual((self.state(), self.state("U")), (("a = 1", 1, True), ("a = 1", 1, False)))

    def test_tag_subscription_keeps_earlier_filter(self):
        self.filters.register_group("G", [sql("a = 1")])
        self.filters.register_group("G", [sql("*", 2, kind="TAG")])
        self.assertEqual(self.state(), ("a = 1", 1, False))


class ForgetTests(ManagerTestCase):
    def setUp(self):
        super().setUp()
        for group in ("G", "H", "Here"):
            self.filters.register_group(group, [sql("a = 1"), sql("a = 2", topic="U")])
        for group in ("G", "H"):
            self.filters.unregister(group)

    def known(self):
        return {(topic, group) for topic in "TU" for group in ("G", "H", "Here") if self.filters.get(topic, group)}

    def test_deleted_topic_forgets_its_filters(self):
        self.filters.forget_topic("T")
        self.assertEqual(self.known(), {("U", "G"), ("U", "H"), ("T", "Here"), ("U", "Here")})

    def test_deleted_group_forgets_its_filters(self):
        self.filters.forget_group("G")
        self.filters.forget_group("Here")
        self.assertEqual(self.known(), {("T", "H"), ("U", "H"), ("T", "Here"), ("U", "Here")})


class FileTests(ManagerTestCase):
    def test_apaches_file_is_read_and_written_unchanged(self):
        os.makedirs(os.path.dirname(self.path))
        shutil.copy(APACHES, self.path)
        self.filters.load()
        self.assertEqual(self.state("Noted", "Gone"), ("index BETWEEN 3 AND 30", 1795286026169, True))
        os.unlink(self.path)
        self.filters.persist()
        self.assertEqual(Path(self.path).read_bytes(), APACHES.read_bytes())

    def test_filters_survive_restart(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.filters.persist()
        self.clock.advance(60)
        self.filters = self.manager()
        self.filters.load()
        self.assertEqual(self.state(), ("a = 1", 7, True))
        self.assertEqual(self.filters.get("T", "G").dead_time, START + 30_000)
        self.assertTrue(self.filters.get("T", "G").matches(b"a\x011"))
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.assertEqual(self.state(), ("a = 1", 7, False))

    def test_young_filter_is_dead_after_restart(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.filters.persist()
        self.clock.advance(5)
        self.filters = self.manager()
        self.filters.load()
        self.assertEqual((self.filters.get("T", "G").dead_time, self.filters.get("T", "G").is_dead), (START, True))

    def test_without_a_file(self):
        self.filters.load()
        self.filters.persist()
        self.assertEqual(Path(self.path).read_text(), '{\n\t"filterDataByTopic":{}\n}')

    def test_filters_of_other_bitmap_size_are_dropped(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.filters.persist()
        self.filters = self.manager(expect_consumer_num_use_filter=64)
        self.filters.load()
        self.assertIsNone(self.state())

    def test_malformed_stored_expression_matches_all_without_bits(self):
        self.filters.register_group("G", [sql("a = 1", 7)])
        self.filters.persist()
        text = Path(self.path).read_text()
        Path(self.path).write_text(text.replace("a = 1", "a ="))
        self.filters = self.manager(enable_calc_filter_bit_map=True)
        self.filters.load()
        known = self.filters.get("T", "G")
        self.assertEqual((known.matches, known.matches_unit), (None, None))
        message = request(b"a\x011")
        self.filters.make_bitmaps([message])
        self.assertEqual(message.bitmap, bytes(14))

    def test_filters_of_long_absent_groups_are_forgotten(self):
        self.filters.register_group("G", [sql("a = 1")])
        self.filters.register_group("H", [sql("a = 1")])
        self.filters.unregister("G")
        for seconds, wanted in ((DAY - 1, True), (1, False)):
            self.clock.advance(seconds)
            self.filters.persist()
            self.assertEqual(self.state() is not None, wanted)
            self.assertEqual('"G"' in Path(self.path).read_text(), wanted)
        self.filters.unregister("H")
        self.clock.advance(DAY)
        self.filters.persist()
        self.assertEqual(Path(self.path).read_text(), '{\n\t"filterDataByTopic":{}\n}')


class BitmapTests(ManagerTestCase):
    def setUp(self):
        super().setUp()
        self.filters = self.manager(enable_calc_filter_bit_map=True)

    def bitmap_of(self, *arguments):
        made = request(*arguments)
        self.filters.make_bitmaps([made])
        return made.bitmap

    def test_bitmap_has_bits_of_matching_groups(self):
        self.filters.register_group("G", [sql("a >= 1")])
        self.filters.register_group("H", [sql("a >= 2")])
        self.filters.register_group("I", [sql("a > x")])
        self.filters.unregister("H")
        masks = {group: self.filters.get("T", group).mask for group in "GHI"}
        for properties, groups in ((b"a\x010", ""), (b"a\x011", "G"), (b"a\x012\x02x\x01y", "GH"), (b"", "")):
            expected = 0
            for group in groups:
                expected |= masks[group]
            self.assertEqual(self.bitmap_of(properties), expected.to_bytes(14, "little"))

    def test_topics_without_filters_have_no_bitmaps(self):
        self.assertIsNone(self.bitmap_of(b"a\x011"))
        self.filters.register_group("G", [sql("a >= 1")])
        self.assertIsNone(self.bitmap_of(b"a\x011", "U"))
        self.filters = self.manager()
        self.filters.register_group("G", [sql("a >= 1")])
        self.assertIsNone(self.bitmap_of(b"a\x011"))  # switched off


class UnitTests(ManagerTestCase):
    def test_unit_match_depends_on_bits_and_store_time(self):
        self.filters.register_group("G", [sql("a = 1")])
        known = self.filters.get("T", "G")
        hit = self.filters.bloom.bitmap(known.mask)
        self.assertTrue(is_hit(hit, known.mask))
        for stored, bitmap, wanted in (
            (START + 1, hit, True), (START + 1, bytes(14), False), (START, bytes(14), True), (START + 1, None, True),
            (START + 1, bytes(13), True), (START + 1, b"", True),
        ):  # fmt: skip
            self.assertIs(known.matches_unit(stored, bitmap), wanted)

    def test_filter_without_bits_has_no_unit_match(self):
        known = ConsumerFilter("G", "T", "SQL92", "a = 1", Selector("a = 1"), START, 1)
        self.assertIsNone(known.matches_unit)


class RetryFilterTests(ManagerTestCase):
    def test_retry_filter_is_that_of_original_topic(self):
        self.filters.register_group("G", [sql("a = 1")])
        wanted = RetryFilter(None, lambda topic: self.filters.get(topic, "G"))
        for properties, matched in (
            (b"RETRY_TOPIC\x01T\x02a\x011", True), (b"RETRY_TOPIC\x01T\x02a\x012", False),
            (b"RETRY_TOPIC\x01U\x02a\x012", True), (b"a\x012", True),
        ):  # fmt: skip
            self.assertIs(wanted.matches(properties), matched)
