import json
import math
from enum import IntEnum

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.bodies.tables import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.fastjson.dialect import FastJSONError
from rocketd.remoting.fastjson.reader import MAX_DEPTH, MAX_LENGTH
from rocketd.remoting.wire.codes import LanguageCode
from tests.support.examples import examples


class Level(IntEnum):
    LOW = 10
    HIGH = 20


class Key(msgspec.Struct, rename="camel", frozen=True):
    topic: str
    queue_id: int


class Inner(msgspec.Struct, rename="camel"):
    name: str
    level: Level | None = None
    tags: set[str] = set()


class Outer(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_number: int = 7
    ratio: float = 0.0
    flag: bool = False
    text: str = "TAG"
    note: str | None = None
    inner: Inner | None = None
    inners: list[Inner] = []
    by_number: dict[int, str] = {}
    by_key: dict[Key, int] = {}
    language: LanguageCode = LanguageCode.JAVA


class Plain(msgspec.Struct, rename="camel"):
    zeta: int = 1
    alpha_beta: str = "x"
    table: dict[str, list[int]] = {}


class LoadsTests(SynchronousTestCase):
    def reads(self, text, value):
        self.assertEqual(fastjson.loads(text), value)
        self.assertEqual(fastjson.loads(text.encode()), value)

    def refused(self, text, position, reason="."):
        with self.assertRaisesRegex(FastJSONError, reason) as caught:
            fastjson.loads(text)
        self.assertEqual(caught.exception.position, position)
        self.assertIn(f"at character {position}", str(caught.exception))

    def test_standard_json(self):
        text = '{"a":[1,-2,3.5,1e3,true,false,null,"x\\n\\u00e4\\/\\"",{}],"b":[],"":{"c":""}}'
        self.reads(text, json.loads(text))

    def test_integer_keys(self):
        self.reads('{0:"a",1:"b",-1:"c"}', {0: "a", 1: "b", -1: "c"})

    def test_maps_of_integers(self):
        self.reads("{1:2}", {1: 2})
        self.reads("[{0:5,-1:-7\n\t},{3:4} ]", [{0: 5, -1: -7}, {3: 4}])
        self.reads("{1:2,}", {1: 2})
        self.reads("{1:2,3:4.5}", {1: 2, 3: 4.5})
        self.reads('{1:2,3:"x"}', {1: 2, 3: "x"})
        self.reads("{1:12345678901234567890}", {1: 12345678901234567890})
        self.refused("{1:12345678901234567890:5}", 24)
        for text, position in (
            ("{1:23:4}", 6),
            ("{1:2-3:4}", 6),
            ("{1:2", 4),
            ("{1:2,,3:4}", 6),
            ("{1:2:3}", 5),
            ("{1:}", 4),
        ):
            self.refused(text, position)

    def test_object_keys_are_hashable_in_any_order(self):
        text = '{{"topic":"T","queueId":0}:9,{"queueId":1,"x":[1,{"y":2}]}:8}'
        self.reads(text, {(("queueId", 0), ("topic", "T")): 9, (("queueId", 1), ("x", (1, (("y", 2),)))): 8})

    def test_single_quotes(self):
        self.reads("{'a':'it\\'s \"so\"'}", {"a": 'it\'s "so"'})

    def test_trailing_commas_and_white_space(self):
        self.reads('\ufeff { "a" : [ 1 , 2 , ] , }\r\n\t\n', {"a": [1, 2]})

    def test_escapes_are_decoded(self):
        self.reads(r'"\b\f\n\r\t\v\0\x41\u0042\'"', "\b\f\n\r\t\v\0AB'")
        self.reads('"a\nb"', "a\nb")

    def test_astral_characters_and_lone_surrogates(self):
        self.reads('"\\ud83d\\ude00\U0001f600"', "\U0001f600\U0001f600")
        self.reads('"x\\ud83dy\\ude00"', "x\ufffdy\ufffd")

    def test_bad_utf8_is_replaced(self):
        self.assertEqual(fastjson.loads(b'"a\xff\xc3"'), "a\ufffd\ufffd")

    def test_last_of_equal_names_wins(self):
        self.reads('{"a":1,"a":2}', {"a": 2})

    def test_leading_zeros_and_plus(self):
        self.reads("[007,+5,-0]", [7, 5, 0])

    def test_faults_have_position(self):
        self.refused("", 0, "ends too early")
        self.refused("  ", 0, "ends too early")
        self.refused("[1,2", 4, "ends too early")
        self.refused('{"a":1', 6, "ends too early")
        self.refused('{"a"', 4, "ends too early")
        self.refused('"abc', 0, "not a JSON value")
        self.refused('{"a":1}x', 7, "follows")
        self.refused("[1 2]", 4, "comma or ]")
        self.refused('{"a" 1}', 6, "colon")
        self.refused('{"a":}', 6, "expected a value")
        self.refused("[,]", 2, "expected a value")
        self.refused("{,}", 2, "member name")
        self.refused("{a:1}", 2, "member name")
        self.refused("{[1]:1}", 2, "member name")
        self.refused("{1.5:1}", 4, "member name")
        self.refused("[NaN]", 4, "expected a value")
        self.refused("[-]", 1, "not a JSON value")
        self.refused('["\\q"]', 1, "unknown escape")
        self.refused('["\\u12"]', 1, "unknown escape")
        self.refused("]", 1)

    def test_depth_is_limited(self):
        self.reads("[" * MAX_DEPTH + "]" * MAX_DEPTH, fastjson.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH))
        for opening in ("[", '{"a":', "{"):
            with self.assertRaisesRegex(FastJSONError, "levels"):
                fastjson.loads(opening * 100_000)

    def test_size_is_limited(self):
        with self.assertRaisesRegex(FastJSONError, "limit"):
            fastjson.loads(b" " * (MAX_LENGTH + 1))

    def test_numbers_are_limited(self):
        with self.assertRaisesRegex(FastJSONError, "5000 digits"):
            fastjson.loads("9" * 5000)

    def test_unclosed_strings_are_refused_quickly(self):
        with self.assertRaises(FastJSONError):
            fastjson.loads('{"a":"' + "\\\\x" * 200_000)

    @given(st.binary(max_size=60) | st.text(alphabet="{}[]:,\"'\\u0aé1-.e tn", max_size=60))
    @settings(max_examples=examples(500), deadline=None)
    def test_any_input_is_read_or_refused(self, data):
        try:
            fastjson.loads(data)
        except FastJSONError as error:
            self.assertLessEqual(error.position, len(data))

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )

    @given(json_values)
    @settings(max_examples=examples(200), deadline=None)
    def test_reads_what_python_writes(self, value):
        for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
            if "\\ud" not in text and text.isprintable():
                self.assertEqual(fastjson.loads(text), value)


class AsTextTests(SynchronousTestCase):
    def test_as_text_of_values(self):
        for value, text in ((True, "true"), (False, "false"), (1, "1"), (1.0, "1.0"), ("a\"ä", "a\"ä"), (None, "null"),
                            ({"a": [1, "x"]}, '{"a":[1,"x"]}')):  # fmt: skip
            self.assertEqual(fastjson.as_text(value), text)


class DecodeTests(SynchronousTestCase):
    def refused(self, text, type_, message):
        with self.assertRaises(FastJSONError) as caught:
            fastjson.decode(text.encode(), type_)
        self.assertEqual(str(caught.exception), message)
        self.assertIsInstance(caught.exception, RemotingCommandError)

    def outer(self, text):
        return fastjson.decode(text.encode(), Outer)

    def test_types_without_object_keys_are_decoded_from_strict_json(self):
        self.assertEqual(fastjson.decode(b'{"zeta":3,"alphaBeta":"y","more":1}', Plain), Plain(3, "y"))
        self.assertEqual(fastjson.decode(b'{"0":"a"}', dict[int, str]), {0: "a"})
        self.assertEqual(fastjson.decode(b'["a"]', list[str]), ["a"])

    def test_absent_and_null_members_take_their_defaults(self):
        self.assertEqual(self.outer("{}"), Outer())
        nulls = ",".join(f'"{name}":null' for name in Outer.__struct_encode_fields__)
        self.assertEqual(self.outer("{" + nulls + "}"), Outer())

    def test_defaults_are_not_shared(self):
        first, second = self.outer("{}"), self.outer("{}")
        first.inners.append(Inner("x"))
        self.assertEqual(second.inners, [])

    def test_integer_and_object_keys_in_all_spellings(self):
        wanted = Outer(by_number={0: "a", 12: "b"}, by_key={Key("T", 3): 9})
        for key in ('{"topic":"T","queueId":3}', '{"queueId":"3","topic":"T","more":1}',
                    r'"{\"queueId\":3,\"topic\":\"T\"}"'):  # fmt: skip
            self.assertEqual(self.outer('{"byNumber":{0:"a","12":"b"},"byKey":{%s:9}}' % key), wanted)  # noqa: UP031

    def test_names_match_in_any_case(self):
        self.assertEqual(self.outer('{"FIRSTNUMBER":1,"firstnumber":2,"Text":"x"}'), Outer(first_number=2, text="x"))

    def test_scalars_of_convertible_types(self):
        read = self.outer('{"firstNumber":"34","ratio":"1.5","flag":"TRUE","text":1,"note":true}')
        self.assertEqual(read, Outer(first_number=34, ratio=1.5, flag=True, text="1", note="true"))
        read = self.outer('{"firstNumber":5.0,"ratio":2,"flag":1,"text":1.0,"note":{"a":1}}')
        self.assertEqual(read, Outer(first_number=5, ratio=2.0, flag=True, text="1.0", note='{"a":1}'))
        self.assertEqual(self.outer('{"flag":0,"firstNumber":""}'), Outer())

    def test_enums_are_read_by_name_or_ordinal(self):
        for text, level in (('"HIGH"', Level.HIGH), ('"hIgH"', Level.HIGH), ("0", Level.LOW), ("1", Level.HIGH),
                            ('"1"', Level.HIGH), ('"other"', None), ("2", None), ("-1", None)):  # fmt: skip
            read = self.outer('{"inner":{"name":"n","level":%s}}' % text)  # noqa: UP031
            self.assertIs(read.inner.level, level, text)
        self.assertEqual(self.outer('{"language":"Klingon"}').language, LanguageCode.JAVA)

    def test_sets_and_lists(self):
        read = self.outer('{"inners":[{"name":"a","tags":["x","y","x"]},{"name":1}],}')
        self.assertEqual(read.inners, [Inner("a", tags={"x", "y"}), Inner("1")])

    def test_faults_name_the_member(self):
        self.refused('{"firstNumber":"x"}', Outer, "firstNumber: expected a whole number, found 'x'")
        self.refused('{"flag":"maybe"}', Outer, "flag: expected true or false, found 'maybe'")
        self.refused('{"ratio":[]}', Outer, "ratio: expected a number, found []")
        self.refused('{"inners":[{"name":"a"},{}]}', Outer, "inners[1].name: the member is missing")
        self.refused('{"inners":[{"name":null}]}', Outer, "inners[0].name: the member is missing")
        self.refused('{"inners":{}}', Outer, "inners: expected a list, found {}")
        self.refused('{"inner":[]}', Outer, "inner: expected an object, found []")
        self.refused('{"inner":{"name":"n","level":[]}}', Outer, "inner.level: expected an enum name, found []")
        self.refused('{"byNumber":{"x":"a"}}', Outer, "byNumber.x: expected a whole number, found 'x'")
        self.refused('{"byNumber":[]}', Outer, "byNumber: expected an object, found []")
        self.refused('{"byKey":{"T":1}}', Outer, "byKey.T: expected a value, found 'T' at character 1")
        self.refused("[]", Outer, "expected an object, found []")
        self.refused("null", Outer, "the text is null")

    def test_malformed_json_error_has_position(self):
        self.refused('{"zeta":', Plain, "the text ends too early at character 8")
        for text in (b"", b"\xff", b"[" * 1_000_000, b'{"zeta":' * 100_000):
            with self.assertRaises(FastJSONError):
                fastjson.decode(text, Plain)

    def test_unsupported_types_are_refused(self):
        for type_ in (int | str, complex):
            with self.assertRaises(TypeError):
                fastjson.decode(b"{x", dict[str, type_])

    @given(st.text(alphabet="{}[]:,\"'0a", max_size=60) | LoadsTests.json_values.map(json.dumps))
    @settings(max_examples=examples(300), deadline=None)
    def test_any_input_fits_or_is_refused(self, text):
        for type_ in (Outer, Plain, dict[int, str], list[Inner]):
            try:
                fastjson.decode(text.encode("utf-8", "replace"), type_)
            except FastJSONError as error:
                self.assertTrue(str(error))


class DumpsTests(SynchronousTestCase):
    def test_members_in_order_of_their_names(self):
        self.assertEqual(fastjson.dumps(Plain()), b'{"alphaBeta":"x","table":{},"zeta":1}')

    def test_none_is_omitted_and_empty_collections_are_kept(self):
        self.assertEqual(
            fastjson.dumps(Outer()),
            b'{"byKey":{},"byNumber":{},"firstNumber":7,"flag":false,"inners":[],"language":"JAVA","ratio":0.0,'
            b'"text":"TAG"}',
        )
        self.assertEqual(fastjson.dumps({"a": None, "b": [None]}), b'{"b":[null]}')

    def test_map_keys_are_written_in_both_dialects(self):
        value = Outer(by_number={0: "a", 1: "b"}, by_key={Key("T", 0): 9})
        self.assertIn(b'"byKey":{{"queueId":0,"topic":"T"}:9},"byNumber":{0:"a",1:"b"}', fastjson.dumps(value))
        self.assertIn(
            rb'"byKey":{"{\"queueId\":0,\"topic\":\"T\"}":9},"byNumber":{"0":"a","1":"b"}',
            fastjson.dumps(value, standard=True),
        )

    def test_loaded_object_keys_are_written_as_keys(self):
        data = b'{{"queueId":0,"topic":"T"}:9}'
        self.assertEqual(fastjson.dumps(fastjson.loads(data)), data)
        self.assertEqual(fastjson.dumps(fastjson.loads(data), standard=True), rb'{"{\"queueId\":0,\"topic\":\"T\"}":9}')

    def test_strings_are_escaped_in_both_dialects(self):
        for value in (Plain(alpha_beta='ä/\U0001f600"\\\n\x01'), {"alphaBeta": 'ä/\U0001f600"\\\n\x01'}):
            self.assertIn('"alphaBeta":"ä/\U0001f600\\"\\\\\\n\\u0001"'.encode(), fastjson.dumps(value))
            self.assertIn(rb'"alphaBeta":"\u00e4/\ud83d\ude00\"\\\n\u0001"', fastjson.dumps(value, standard=True))

    def test_lone_surrogate_is_not_written(self):
        self.assertEqual(fastjson.dumps(["a\ud83d"]), b'["a?"]')

    def test_numbers_and_enums(self):
        value = [1, -(2**63), 0.0, 1.5, math.nan, math.inf, True, Level.LOW, LanguageCode.GO]
        self.assertEqual(fastjson.dumps(value), b'[1,-9223372036854775808,0.0,1.5,null,null,true,"LOW","GO"]')

    def test_sets_are_lists(self):
        self.assertEqual(fastjson.dumps({"b", "a"}), b'["a","b"]')
        self.assertEqual(fastjson.dumps(Inner("n", tags={"b", "a"})), b'{"name":"n","tags":["a","b"]}')

    def test_other_values_are_refused(self):
        with self.assertRaises(TypeError):
            fastjson.dumps([object()])

    def test_written_values_are_read_again(self):
        value = Outer(
            1, 2.5, True, "ä\n", "n", Inner("i", Level.HIGH, {"t"}), [Inner("j")], {5: "five"}, {Key("T", 1): 2},
            LanguageCode.RUST,
        )  # fmt: skip
        for data in (fastjson.dumps(value), fastjson.dumps(value, standard=True), fastjson.dumps_pretty(value)):
            self.assertEqual(fastjson.decode(data, Outer), value)
        self.assertTrue(json.loads(fastjson.dumps(value, standard=True)))

    @given(LoadsTests.json_values)
    @settings(max_examples=examples(200), deadline=None)
    def test_standard_output_is_standard_json(self, value):
        json.loads(fastjson.dumps(value, standard=True))


class DumpsPrettyTests(SynchronousTestCase):
    def test_integer_keys_stay_on_their_line(self):
        self.assertEqual(
            fastjson.dumps_pretty({"offsetTable": {"T@G": {0: 5, 1: 7}, "U@G": {}}}).decode(),
            '{\n\t"offsetTable":{\n\t\t"T@G":{0:5,1:7\n\t\t},\n\t\t"U@G":{}\n\t}\n}',
        )

    def test_members_in_order_a_tab_a_level(self):
        self.assertEqual(
            fastjson.dumps_pretty(Plain(table={"a": [1, 2]})).decode(),
            '{\n\t"alphaBeta":"x",\n\t"table":{\n\t\t"a":[\n\t\t\t1,\n\t\t\t2\n\t\t]\n\t},\n\t"zeta":1\n}',
        )

    def test_arrays_stay_on_their_line(self):
        self.assertEqual(fastjson.dumps_pretty({"a": (1, 2), "b": ()}).decode(), '{\n\t"a":[1,2],\n\t"b":[]\n}')
        self.assertEqual(fastjson.dumps({"a": (1, 2), "b": ()}), b'{"a":[1,2],"b":[]}')

    def test_pretty_object_keys_stay_on_line_and_none_is_omitted(self):
        text = fastjson.dumps_pretty({"a": None, "b": {Key("T", 0): 5}}).decode()
        self.assertEqual(text, '{\n\t"b":{{\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:5\n\t}\n}')


class KeptTextsTests(SynchronousTestCase):
    def test_kept_texts_do_not_change_output(self):
        kept = fastjson.KeptTexts()
        topics = {name: TopicConfig(name) for name in ("a", "%RETRY%b", 'ü"')}
        for change in (
            {},
            {"c": TopicConfig("c", 1, 2)},
            {"a": TopicConfig("a", 3, 4, 5), "d": TopicConfig("d")},
            {"c": None, "a": None},
            dict.fromkeys(("a", "c"), TopicConfig("a", order=True)),
            dict.fromkeys(("a", "c", "d", "%RETRY%b", 'ü"')),
            {"e": TopicConfig("e")},
        ):
            topics = {name: config for name, config in {**topics, **change}.items() if config is not None}
            wrapper = TopicConfigSerializeWrapper(topics, DataVersion(1, len(topics)))
            self.assertEqual(fastjson.dumps_pretty(wrapper, kept), fastjson.dumps_pretty(wrapper))

    def test_only_new_and_replaced_entries_are_written(self):
        kept = fastjson.KeptTexts()
        topics = {str(number): TopicConfig(str(number)) for number in range(100)}
        for change, written in ((None, 100), (None, 0), ("7", 1), ("new", 1)):
            if change:
                topics[change] = TopicConfig(change)
            before = kept.written
            fastjson.dumps_pretty(TopicConfigSerializeWrapper(topics), kept)
            self.assertEqual(kept.written - before, written)

    def test_text_of_a_removed_entry_is_not_kept(self):
        kept = fastjson.KeptTexts()
        config = TopicConfig("a")
        for topics in ({"a": config}, {"b": config}, {"a": config}):
            fastjson.dumps_pretty(TopicConfigSerializeWrapper(topics), kept)
        self.assertEqual(kept.written, 3)
