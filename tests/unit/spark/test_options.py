import pickle

from twisted.trial.unittest import SynchronousTestCase

from rocketd.spark.errors import OptionError
from rocketd.spark.options import READ_OPTIONS, ReadOptions
from rocketd.spark.options.positions import (
    Earliest,
    ExactOffsets,
    GroupOffsets,
    Latest,
    QueueName,
    SinceTime,
    SinceTimes,
)
from rocketd.spark.ranges import QueueRange
from rocketd.spark.source import Source, cluster_options
from tests.support.spark_catalog import MemoryCatalog, queue

STORE = {"store": "/s", "subscribe": "orders"}
CLUSTER = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}


class OptionsTestCase(SynchronousTestCase):
    def parse(self, base=STORE, stream=False, **given):
        return ReadOptions.parse({**base, **given}, stream=stream)

    def refused(self, base=STORE, stream=False, **given):
        return str(self.assertRaises(OptionError, self.parse, base, stream, **given))


class ValueTests(OptionsTestCase):
    def test_options_have_defaults(self):
        options = self.parse()
        self.assertEqual((options.store, options.subscribe), ("/s", ("orders",)))
        self.assertEqual((options.starting, options.ending), (Earliest(), Latest()))
        self.assertEqual((options.fail_on_data_loss, options.decompress, options.verify_crc), (True, True, False))
        self.assertEqual((options.max_bytes_per_partition, options.batch_bytes), (512 << 20, 8 << 20))

    def test_a_stream_starts_at_the_latest(self):
        self.assertEqual(self.parse(stream=True).starting, Latest())

    def test_letter_case_of_names_does_not_count(self):
        options = ReadOptions.parse({"STORE": "/s", "subscribepattern": "o.*", "maxROWS": "7"})
        self.assertEqual((options.subscribe_pattern, options.max_rows), ("o.*", 7))

    def test_every_option_accepts_its_values(self):
        examples = {
            "namesrv": ("a:1, [::1]:2;c:3", ("a:1", "[::1]:2", "c:3")),
            "accessKey": ("me", "me"),
            "secretKey": ("hidden", "hidden"),
            "securityToken": ("hidden", "hidden"),
            "credentialsFile": ("/c.yml", "/c.yml"),
            "tls": ("TRUE", True),
            "tlsCaFile": ("/ca", "/ca"),
            "tlsVerify": ("false", False),
            "tlsCertFile": ("/cert", "/cert"),
            "tlsKeyFile": ("/key", "/key"),
            "timeout": ("500ms", 0.5),
            "retryTimeout": ("2m", 120.0),
            "store": (" /s ", "/s"),
            "commitLog": ("/log", "/log"),
            "brokerName": ("b", "b"),
            "subscribe": ("a, b,a", ("a", "b")),
            "subscribePattern": ("a.*|b", "a.*|b"),
            "assign": (
                '{"t": [1, 0], "u": {"b": [2]}}',
                (QueueName("t", "", 1), QueueName("t", "", 0), QueueName("u", "b", 2)),
            ),
            "startingOffsets": ("Group:g 1", GroupOffsets("g 1")),
            "endingOffsets": ('{"t": {"b": {"0": -1}}}', ExactOffsets(((QueueName("t", "b", 0), -1),))),
            "startingTimestamp": ("1714564800000", 1714564800000),
            "endingTimestamp": ("2024-05-01T12:00:00Z", 1714564800000),
            "startingOffsetsByTimestamp": (
                '{"t": {"0": "2024-05-01 14:00+02:00"}}',
                ((QueueName("t", "", 0), 1714564800000),),
            ),
            "endingOffsetsByTimestamp": ('{"t": {"b": {"3": 5}}}', ((QueueName("t", "b", 3), 5),)),
            "timestampStrategy": ("ERROR", "error"),
            "subExpression": ("TagA || TagB", frozenset({"TagA", "TagB"})),
            "sql92": ("a > 5", "a > 5"),
            "keys": ("k1,k2", ("k1", "k2")),
            "maxRows": ("10", 10),
            "maxOffsetsPerTrigger": ("11", 11),
            "maxBytesPerTrigger": ("64m", 64 << 20),
            "minOffsetsPerTrigger": ("9", 9),
            "maxTriggerDelay": ("1.5h", 5400.0),
            "minPartitions": ("3", 3),
            "maxBytesPerPartition": ("1g", 1 << 30),
            "failOnDataLoss": ("false", False),
            "decompress": ("false", False),
            "verifyCrc": ("true", True),
            "commitGroup": ("g", "g"),
            "batchBytes": ("100", 100),
        }
        self.assertEqual(set(examples), {option.name for option in READ_OPTIONS})
        for option in READ_OPTIONS:
            text, value = examples[option.name]
            self.assertEqual(option.kind.read(text), value, option.name)

    def test_refused_value_is_named_with_accepted_ones(self):
        wrong = {
            "namesrv": "nowhere",
            "tls": "yes",
            "timeout": "10",
            "subscribe": "a,,b",
            "subscribePattern": "(",
            "assign": '{"t": 1}',
            "startingOffsets": "soon",
            "endingOffsets": '{"t": {"b": {"0": -2}}}',
            "startingTimestamp": "yesterday",
            "endingTimestamp": "-1",
            "startingOffsetsByTimestamp": '{"t": 5}',
            "endingOffsetsByTimestamp": "[]",
            "timestampStrategy": "newest",
            "subExpression": "a || ",
            "sql92": "a >",
            "maxRows": "0",
            "maxOffsetsPerTrigger": "1.5",
            "maxBytesPerTrigger": "64 q",
            "minOffsetsPerTrigger": "-1",
            "maxTriggerDelay": "5 x",
            "minPartitions": "many",
            "maxBytesPerPartition": "",
            "failOnDataLoss": "maybe",
            "store": "  ",
        }
        accepted = {option.name: option.kind.accepted for option in READ_OPTIONS}
        for name, value in wrong.items():
            text = str(self.assertRaises(OptionError, ReadOptions.parse, {name: value}))
            self.assertIn(name, text)
            self.assertIn(repr(value), text)
            self.assertIn(accepted[name], text)

    def test_starting_positions(self):
        self.assertEqual(self.parse(startingOffsets="EARLIEST").starting, Earliest())
        self.assertEqual(
            self.parse(startingOffsets='{"t": {"b": {"0": 5, "1": -2}}}').starting,
            ExactOffsets(((QueueName("t", "b", 0), 5), (QueueName("t", "b", 1), -2))),
        )
        self.assertEqual(self.parse(startingTimestamp="5").starting, SinceTime(5))
        times = '{"t": {"0": 5}}'
        self.assertEqual(
            self.parse(startingOffsetsByTimestamp=times).starting, SinceTimes(((QueueName("t", "", 0), 5),))
        )
        self.assertEqual(self.parse(endingTimestamp="6").ending, SinceTime(6))

    def test_times_without_a_zone_are_utc(self):
        self.assertEqual(self.parse(startingTimestamp="1970-01-02").starting, SinceTime(86_400_000))

    def test_json_with_a_queue_twice_is_refused(self):
        self.assertIn("startingOffsets", self.refused(startingOffsets='{"t": {"0": 5, "0": 6}}'))

    def test_sub_expression_star_is_all_tags(self):
        self.assertEqual(self.parse(subExpression="*").sub_expression, None)

    def test_error_in_sql92_is_explained(self):
        self.assertIn("ends too early", self.refused(sql92="a >"))

    def test_rest_behind_sql92_condition_is_refused(self):
        for base in (STORE, CLUSTER):
            self.assertIn("it ends before 'b = 2'", self.refused(base, sql92="a = 1 b = 2"))

    def test_options_survive_pickling(self):
        options = self.parse(startingOffsets='{"t": {"b": {"0": 5}}}', subExpression="a||b")
        self.assertEqual(pickle.loads(pickle.dumps(options)), options)
        self.assertEqual(
            hash(options), hash(self.parse(startingOffsets='{"t": {"b": {"0": 5}}}', subExpression="b||a"))
        )


class NameTests(OptionsTestCase):
    def test_an_unknown_option_is_named_with_the_nearest(self):
        text = self.refused(maxOffsetPerTrigger="5")
        self.assertIn("'maxOffsetPerTrigger'", text)
        self.assertIn("did you mean maxOffsetsPerTrigger?", text)

    def test_an_unknown_option_like_none_points_to_the_reference(self):
        self.assertIn("docs/spark.md", self.refused(zzz="5"))

    def test_names_of_other_connectors_are_recognised(self):
        self.assertIn("did you mean subscribe?", self.refused(topic="t"))
        self.assertIn("did you mean namesrv?", self.refused(nameServer="t"))
        self.assertIn("option store", self.refused(path="/s"))

    def test_error_of_unknown_option_hides_its_value(self):
        self.assertNotIn("geheim", self.refused(secretKeyy="geheim"))


class TogetherTests(OptionsTestCase):
    def test_contradicting_options_are_named(self):
        pairs = [
            ("subscribe", "subscribePattern", {"subscribePattern": "a"}),
            ("subscribe", "assign", {"assign": '{"t": [0]}'}),
            ("store", "namesrv", {"namesrv": "a:1"}),
            ("startingOffsets", "startingTimestamp", {"startingOffsets": "earliest", "startingTimestamp": "5"}),
            ("endingOffsets", "endingTimestamp", {"endingOffsets": "latest", "endingTimestamp": "5"}),
            ("subExpression", "sql92", {"subExpression": "a", "sql92": "a > 5"}),
        ]
        for first, second, given in pairs:
            text = self.refused(**given)
            self.assertIn(f"{first} and {second} contradict", text)

    def test_source_and_choice_of_topics_are_required(self):
        self.assertIn("store, namesrv", str(self.assertRaises(OptionError, ReadOptions.parse, {"subscribe": "t"})))
        self.assertIn("subscribePattern", str(self.assertRaises(OptionError, ReadOptions.parse, {"store": "/s"})))

    def test_options_of_a_cluster_do_not_go_with_a_store(self):
        for name, value in [("accessKey", "k"), ("tls", "true"), ("timeout", "5s"), ("credentialsFile", "/c")]:
            self.assertIn(name, self.refused(**{name: value}))
        self.assertIn("commitGroup", self.refused(stream=True, commitGroup="g"))
        self.assertIn("commitLog", self.refused(CLUSTER, commitLog="/l"))

    def test_options_of_batches_are_not_for_streams(self):
        for name, value in [
            ("endingOffsets", "latest"),
            ("endingTimestamp", "5"),
            ("endingOffsetsByTimestamp", '{"t": {"0": 5}}'),
            ("maxRows", "5"),
        ]:
            self.assertIn(f"{name} is for batch reads only", self.refused(stream=True, **{name: value}))

    def test_options_of_streams_are_not_for_batches(self):
        for name, value in [
            ("maxOffsetsPerTrigger", "5"),
            ("maxBytesPerTrigger", "5"),
            ("minOffsetsPerTrigger", "5"),
            ("maxTriggerDelay", "5s"),
            ("commitGroup", "g"),
        ]:
            self.assertIn(f"{name} is for streams only", self.refused(CLUSTER, **{name: value}))

    def test_options_for_an_empty_read_are_refused(self):
        self.assertIn("nothing to read", self.refused(startingOffsets="latest"))
        self.assertIn("after endingTimestamp", self.refused(startingTimestamp="9", endingTimestamp="5"))
        text = self.refused(startingOffsets='{"t": {"0": 9}}', endingOffsets='{"t": {"0": 5}}')
        self.assertIn("starts t/0 at 9, behind its end in endingOffsets, 5", text)
        text = self.refused(stream=True, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5")
        self.assertIn("minOffsetsPerTrigger is 9, more than maxOffsetsPerTrigger, which is 5", text)

    def test_max_trigger_delay_needs_min_offsets(self):
        self.assertIn("minOffsetsPerTrigger", self.refused(stream=True, maxTriggerDelay="5s"))

    def test_accounts_are_whole_and_given_once(self):
        self.assertIn("go together", self.refused(CLUSTER, accessKey="k"))
        self.assertIn("contradict", self.refused(CLUSTER, accessKey="k", secretKey="s", credentialsFile="/c"))

    def test_security_token_needs_access_key(self):
        self.assertIn("accessKey", self.refused(CLUSTER, securityToken="t"))
        self.assertIn("contradict", self.refused(CLUSTER, securityToken="t", credentialsFile="/c"))

    def test_tls_options_without_tls_are_refused(self):
        for name, value in [("tlsCaFile", "/ca"), ("tlsVerify", "true"), ("tlsCertFile", "/c"), ("tlsKeyFile", "/k")]:
            self.assertIn(f"{name} goes with tls=true", self.refused(CLUSTER, **{name: value}))
            self.assertIn(f"{name} goes with tls=true", self.refused(CLUSTER, tls="false", **{name: value}))
            self.parse(CLUSTER, tls="true", **{name: value})

    def test_a_batch_of_rows_has_a_bound(self):
        self.assertIn("batchBytes", self.refused(batchBytes="2g"))

    def test_check_refuses_options_wrong_for_every_read(self):
        ReadOptions.check({**STORE, "maxRows": "5"})
        ReadOptions.check({**STORE, "maxOffsetsPerTrigger": "5"})
        self.assertRaises(OptionError, ReadOptions.check, {**STORE, "maxRow": "5"})
        self.assertRaises(OptionError, ReadOptions.check, {**STORE, "assign": '{"t": [0]}'})


class SecretTests(OptionsTestCase):
    def test_secrets_are_in_no_repr(self):
        options = self.parse(CLUSTER, accessKey="me", secretKey="geheim", securityToken="verborgen")
        self.assertEqual((options.secret_key, options.security_token), ("geheim", "verborgen"))
        self.assertNotIn("geheim", repr(options))
        self.assertNotIn("verborgen", repr(options))

    def test_error_of_wrong_secret_hides_it(self):
        for option in READ_OPTIONS:
            if option.secret:
                error = self.assertRaises(OptionError, ReadOptions.parse, {**CLUSTER, option.name: "   \t "})
                self.assertNotIn("\\t", str(error))
                self.assertIn(option.name, str(error))
        self.assertEqual({one.name for one in READ_OPTIONS if one.secret}, {"secretKey", "securityToken"})


class ClusterTests(OptionsTestCase):
    def cluster(self, **given):
        return cluster_options(self.parse(CLUSTER, **given))

    def credentials(self, text):
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_cluster_options_reach_the_client(self):
        options = self.cluster(
            accessKey="me",
            secretKey="geheim",
            tls="true",
            tlsCaFile="/ca",
            tlsVerify="false",
            timeout="3s",
            retryTimeout="1m",
        )
        self.assertEqual(
            (options.namesrv, options.access_key, options.secret_key), (("127.0.0.1:9876",), "me", "geheim")
        )
        self.assertEqual((options.tls, options.tls_ca, options.tls_verify), (True, "/ca", False))
        self.assertEqual((options.timeout, options.patience), (3, 60))
        self.assertEqual(cluster_options(self.parse(CLUSTER), 5).patience, 5)

    def test_an_account_from_a_file(self):
        options = self.cluster(credentialsFile=self.credentials("accessKey: me\nsecretKey: geheim\nsecurityToken: t\n"))
        self.assertEqual((options.access_key, options.secret_key, options.security_token), ("me", "geheim", "t"))

    def test_malformed_credentials_file_is_named_without_its_content(self):
        for text in ("secretKey: geheim\n", "geheim: [", "accessKey: me\nsecretKey: 1234\n"):
            path = self.credentials(text)
            told = str(self.assertRaises(OptionError, self.cluster, credentialsFile=path))
            self.assertIn(f"credentialsFile: {path}", told)
            self.assertNotIn("geheim", told)
            self.assertNotIn("1234", told)
        self.assertIn("/nowhere", str(self.assertRaises(OptionError, self.cluster, credentialsFile="/nowhere")))


class SizeTests(OptionsTestCase):
    def test_size_of_few_messages_is_asked_for_only_on_demand(self):
        source = Source(self.parse(CLUSTER))
        self.patch(source, "_catalog", MemoryCatalog({}))
        few, many = (QueueRange(queue(0), 0, count) for count in (100, 10_000))
        self.assertEqual((source.size(few), source.size(many)), (None, 1_000_000))
        self.assertEqual(source.size(few, worth_asking=0), 10_000)


class PlanTests(OptionsTestCase):
    def test_a_source_crosses_to_tasks_without_its_secrets_being_shown(self):
        source = Source(self.parse(CLUSTER, accessKey="me", secretKey="geheim"))
        self.assertNotIn("geheim", repr(source))
        self.assertEqual(pickle.loads(pickle.dumps(source)).options, source.options)

    def test_read_plan_has_options_of_the_task(self):
        plan = self.parse(subExpression="a || b", batchBytes="5k", verifyCrc="true").read_plan(("body",))
        self.assertEqual(
            (plan.columns, plan.tags, plan.batch_bytes, plan.verify_crc), (("body",), {"a", "b"}, 5120, True)
        )
        self.assertEqual(self.parse().read_plan(("body",)).tags, None)

    def test_every_option_is_documented(self):
        for option in READ_OPTIONS:
            self.assertTrue(option.doc.rstrip().endswith("."), option.name)
            self.assertTrue(option.kind.accepted, option.name)
