import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import KEPT_CHANGES, BrokerConfig, BrokerSettings
from rocketd.common.settings import properties_file
from rocketd.common.settings.checks import is_address, is_address_list, is_delays, is_host, is_hours
from rocketd.common.settings.daemon_settings import DaemonSettings, UpdateResult, changes_of, update_remark
from rocketd.common.settings.declaration import ConfigError, Machine, settings_of, text_of
from rocketd.common.suggest import did_you_mean, nearest
from rocketd.console.settings import ConsoleSettings
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.serving.settings import ServerLimits
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.state.kept_settings import keep_settings
from tests.support.places import GOLDEN

CONFIGS = GOLDEN / "config"
OTHER_DEFAULTS = {"slaveTimeout"}
"""Settings with another default than Apache's, for a reason that their description says."""
OF_OUR_OWN = (
    *(setting.name for setting in settings_of(ServerLimits)),
    "addressesByNetwork",
    "adminWithoutAcl",
    "bindAddress",
    "brokerAllowedAddresses",
    "connectionLanes",
    "cpuAffinity",
    "groupGuardGraceTime",
    "maxHeldPulls",
    "maxHeldPullsPerConnection",
    "maxSuspendTimeoutMillis",
    "logDir",
    "logFileCount",
    "logFileSize",
    "logFormat",
    "logLevel",
    "haAllowedAddresses",
    "haIdentifyTimeout",
    "haMaxSlaves",
    "haMaxSlavesPerAddress",
    "haMaxUnidentified",
    "haTlsEnable",
    "haTlsMode",
    "maxGroupsPerConnection",
    "maxHeartbeatBytes",
    "maxNewGroupsPerHeartbeat",
    "maxNewGroupsPerSecond",
    "metricsHost",
    "metricsMaxSeries",
    "metricsPort",
    "maxTopics",
    "maxConsumerGroups",
    "maxNewGroupsByOffsetsPerSecond",
    "maxNewTopicsPerSecond",
    "maxQueueLocks",
    "maxQueuesPerLockRequest",
    "maxSubscriptionsPerConnection",
    "pluginStopTimeout",
    "singleMasterCheck",
    "timerMaxDelaySec",
    "timerWheelEnable",
)
"""Settings that Apache's 4.9.7 does not have."""


def pairs(text):
    return [(entry.key, entry.value) for entry in properties_file.parse(text)]


class PropertiesFileTests(SynchronousTestCase):
    def test_key_separators_are_recognized(self):
        for line in ("a=b c", "a:b c", "a b c", " a = b c", "\ta\t:\tb c", "a \f b c"):
            self.assertEqual(pairs(line), [("a", "b c")], line)

    def test_value_may_contain_separators(self):
        self.assertEqual(pairs("a==b\nc = :d\ne : f=g\nh  i=j"), [("a", "=b"), ("c", ":d"), ("e", "f=g"), ("h", "i=j")])

    def test_key_without_value_and_empty_key(self):
        self.assertEqual(pairs("a\nb=\n=c"), [("a", ""), ("b", ""), ("", "c")])

    def test_blanks_at_the_end_belong_to_the_value(self):
        self.assertEqual(pairs("a = b \t"), [("a", "b \t")])

    def test_comments_and_blank_lines(self):
        self.assertEqual(pairs("# a=b\n  ! c=d\n\n \t\ne=f # g\n# not continued \\\nh=i"), [("e", "f # g"), ("h", "i")])

    def test_continued_lines(self):
        self.assertEqual(pairs("a=b\\\n   c\\\r\n\td\ne=f\\\\\ng=h\\"), [("a", "bcd"), ("e", "f\\"), ("g", "h")])

    def test_continuation_line_starting_with_hash_is_value(self):
        self.assertEqual(pairs("a=b\\\n# c"), [("a", "b# c")])

    def test_backslash_on_blank_line_continues_nothing(self):
        self.assertEqual(pairs("\\\n# c\n\\\na=b"), [("a", "b")])

    def test_escapes_are_decoded(self):
        self.assertEqual(pairs(r"a\ b\=\:c=\tx\n\r\f\q\u0041\ z"), [("a b=:c", "\tx\n\r\fqA z")])

    def test_surrogate_pair_escape_is_one_character(self):
        self.assertEqual(pairs(r"a=\ud83d\ude00"), [("a", "\U0001f600")])

    def test_malformed_unicode_escape_names_its_line(self):
        with self.assertRaisesRegex(ValueError, r"^line 3: malformed \\uXXXX escape: \\u12x"):
            properties_file.parse("a=b\n\nc=\\u12xy")
        with self.assertRaisesRegex(ValueError, "^line 1: "):
            properties_file.parse("a=\\u12")

    def test_line_numbers_and_spans(self):
        entries = properties_file.parse("# x\na=1\nb=2\\\n3\nc=4")
        self.assertEqual([(e.key, e.line, e.lines) for e in entries], [("a", 2, 1), ("b", 3, 2), ("c", 5, 1)])

    def test_decoding_takes_utf8_and_falls_back_to_latin1(self):
        self.assertEqual(properties_file.decode("a=é".encode()), "a=é")
        self.assertEqual(properties_file.decode("a=é".encode("latin-1")), "a=é")
        self.assertEqual(properties_file.decode("\ufeffa=b".encode()), "a=b")

    def test_edit_keeps_other_lines(self):
        before = "# mine\na = 1\n\nb=2\\\n  3\n! end\nc:4\na = 5\n"
        after = properties_file.edit(before, {"b": "9", "a": "6", "new": "x y"})
        self.assertEqual(after, "# mine\na = 1\n\nb=9\n! end\nc:4\na=6\nnew=x y\n")

    def test_edit_adds_missing_final_newline(self):
        self.assertEqual(properties_file.edit("a=1", {"b": "2"}), "a=1\nb=2\n")
        self.assertEqual(properties_file.edit("", {"b": "2"}), "b=2\n")

    def test_edit_of_file_ending_in_continued_line(self):
        for before in ("a=1\\", "a=1\\\n", "x=2\na=\\\n1\\\n"):
            self.assertEqual(dict(pairs(properties_file.edit(before, {"b": "2"}))), dict(pairs(before)) | {"b": "2"})

    @given(st.dictionaries(st.text(min_size=1), st.text()))
    def test_formatted_pairs_are_read_back(self, values):
        text = "".join(properties_file.format_pair(key, value) + "\n" for key, value in values.items())
        self.assertEqual(dict(pairs(text)), values)

    @given(st.text(alphabet="ab=:# \\\n\r\tu!"))
    def test_edit_changes_given_keys_only(self, text):
        try:
            before = dict(pairs(text))
        except ValueError:
            return
        after = dict(pairs(properties_file.edit(text, {"zz": "1", "a": "2"})))
        self.assertEqual(after, before | {"zz": "1", "a": "2"})


class SuggestTests(SynchronousTestCase):
    def test_nearest_returns_similar_key(self):
        known = ["listenPort", "brokerName", "brokerIP1"]
        self.assertEqual(nearest("listenport", known), "listenPort")
        self.assertEqual(nearest("brokerIp", known), "brokerIP1")
        self.assertIsNone(nearest("zzz", known))

    def test_nearest_of_a_different_word_is_none(self):
        for word, known in (
            ("--begin", "--end"),
            ("--start", "--tags"),
            ("--limit", "--timeout"),
            ("--max", "--format"),
            ("--broker", "--property"),
            ("workers", "order"),
            ("filter", "cluster"),
            ("poll_timeout", "consume_timeout"),
            ("max_batch_size", "max_message_size"),
        ):
            self.assertIsNone(nearest(word, [known]), word)

    def test_nearest_returns_option_with_its_dashes(self):
        self.assertEqual(nearest("--tgas", ["--tag-of", "--tags"]), "--tags")

    def test_did_you_mean_names_similar_key(self):
        self.assertEqual(did_you_mean("listnPort", ["listenPort"]), "; did you mean listenPort?")
        self.assertEqual(did_you_mean("zzz", ["listenPort"]), "")


class CheckTests(SynchronousTestCase):
    def test_is_address_accepts_host_and_port(self):
        for good in ("127.0.0.1:9876", "mq-1.example:1", "[::1]:9876", "[fe80::1%eth0]:65535"):
            self.assertTrue(is_address(good), good)
        for bad in ("", "a", "a:", ":1", "a:0", "a:65536", "::1:9876", "a:b", "http://a:1", "a b:1", "a:1,b:2"):
            self.assertFalse(is_address(bad), bad)

    def test_is_address_list_accepts_semicolons_only(self):
        self.assertTrue(is_address_list("a:1;b:2; [::1]:3;"))
        for bad in ("", ";", "a:1;;b:2", "a:1,b:2", "a:1;b"):
            self.assertFalse(is_address_list(bad), bad)

    def test_is_host_accepts_names_and_addresses(self):
        for good in ("10.0.0.1", "::1", "fe80::1%eth0", "localhost", "mq-1.example.com.", "broker_1", "1a.b", "x" * 63):
            self.assertTrue(is_host(good), good)
        for bad in (
            "", ".", "127.0.0.1:20911", "[::1]", "1.2.3.4.5", "300.1.1.1", "1.2.3", "a b", "notahost..", "-a", "a-.b",
            "x" * 64, ".".join(["x" * 60] * 5), "bröker", "a/b",
        ):  # fmt: skip
            self.assertFalse(is_host(bad), bad)

    def test_hours_and_delays(self):
        self.assertTrue(is_hours("04") and is_hours("4;16;23"))
        self.assertFalse(is_hours("24") or is_hours("4,5") or is_hours(""))
        self.assertTrue(is_delays("1s 5m 2h 3d"))
        self.assertFalse(is_delays("1s  5s") or is_delays("1x") or is_delays(""))


class SettingTests(SynchronousTestCase):
    def setting(self, key):
        return BrokerSettings.by_name()[key]

    def refused(self, key, text):
        return str(self.assertRaises(ValueError, self.setting(key).parse, text))

    def test_keys_are_apaches(self):
        for key in ("brokerIP1", "destroyMapedFileIntervalForcibly", "checkCRCOnRecover", "useTLS", "dLegerGroup"):
            self.assertEqual(self.setting(key).name, key)

    def test_whole_numbers_are_range_checked(self):
        self.assertEqual(self.setting("brokerId").parse(" 9223372036854775807 "), 2**63 - 1)
        self.assertEqual(self.refused("brokerId", "9223372036854775808"), "a whole number of 64 bits")
        self.assertEqual(self.setting("maxDelayTime").parse("-2147483648"), -(2**31))
        self.assertEqual(self.refused("maxDelayTime", "2147483648"), "a whole number of 32 bits")
        self.assertEqual(self.refused("listenPort", "65536"), "a whole number from 0 to 65535")

    def test_malformed_numbers_are_refused(self):
        for text in ("", "abc", "1.0", "1_000", "0x10", "1e3", "\u0661", "1 2", "9" * 5000):
            self.refused("maxMessageSize", text)

    def test_floats_are_range_checked(self):
        key = "rocketmq.broker.diskSpaceWarningLevelRatio"
        self.assertEqual(self.setting(key).parse("0.95"), 0.95)
        for text in ("1.5", "nan", "inf", "x", ""):
            self.assertEqual(self.refused(key, text), "a number from 0.0 to 1.0")

    def test_booleans_are_never_guessed(self):
        self.assertIs(self.setting("traceOn").parse("TRUE"), True)
        self.assertIs(self.setting("traceOn").parse("false "), False)
        for text in ("yes", "1", "on", ""):
            self.assertEqual(self.refused("traceOn", text), "true or false")

    def test_choices_ignore_case_and_refuse_others(self):
        self.assertEqual(self.setting("brokerRole").parse("slave"), "SLAVE")
        self.assertEqual(self.refused("flushDiskType", "SYNC"), "one of ASYNC_FLUSH, SYNC_FLUSH")

    def test_empty_value_unsets_optional_settings_only(self):
        self.assertIsNone(self.setting("namesrvAddr").parse(""))
        self.assertEqual(self.setting("brokerName").parse(""), "")

    def test_values_are_written_as_java_does(self):
        self.assertEqual([text_of(v) for v in (True, False, 3, 0.9, None, "x")], ["true", "false", "3", "0.9", "", "x"])

    def test_defaults_that_depend_on_the_machine(self):
        machine = Machine(cpus=3, host_name="box", home="/home/u")
        values = {s.attribute: s.factory(machine) for g in (BrokerConfig, MessageStoreConfig) for s in settings_of(g)}
        self.assertEqual(values["send_message_thread_pool_nums"], 3)
        self.assertEqual(values["pull_message_thread_pool_nums"], 22)
        self.assertEqual(values["end_transaction_thread_pool_nums"], 14)
        self.assertEqual(values["broker_name"], "box")
        self.assertEqual(values["store_path_root_dir"], "/home/u/store")

    def test_computed_defaults_have_a_formula(self):
        one, other = Machine(1, "a", "/a"), Machine(7, "b", "/b")
        for daemon in (BrokerSettings, NamesrvSettings, ConsoleSettings):
            for _, setting in daemon.declared():
                if setting.factory(one) != setting.factory(other):
                    self.assertTrue(setting.formula, setting.name)
                self.assertTrue(setting.doc.endswith("."), setting.name)

    def test_defaults_are_acceptable_values(self):
        for daemon in (BrokerSettings, NamesrvSettings, ConsoleSettings):
            for _, setting in daemon.declared():
                value = setting.factory(Machine(2, "a", "/a"))
                self.assertEqual(setting.parse(text_of(value)), value, setting.name)

    def test_keys_and_aliases_are_unambiguous(self):
        for daemon in (BrokerSettings, NamesrvSettings, ConsoleSettings):
            kinds = {}
            for _, setting in daemon.declared():
                self.assertEqual(
                    kinds.setdefault(setting.name, (setting.kind, setting.hot)), (setting.kind, setting.hot)
                )
            for alias in {alias for _, setting in daemon.declared() for alias in setting.aliases}:
                self.assertNotIn(alias, kinds)


class ConstructorTests(SynchronousTestCase):
    def test_plain_constructors(self):
        settings = BrokerSettings(
            broker=BrokerConfig(broker_name="b"), store=MessageStoreConfig(store_path_root_dir="/data")
        )
        self.assertEqual(settings.broker.broker_name, "b")
        self.assertEqual(settings.store.store_path_commit_log, "/data/commitlog")
        self.assertEqual(settings.server.listen_port, 10911)
        self.assertEqual(NamesrvSettings().server.listen_port, 9876)

    def test_constructor_ignores_environment(self):
        self.patch(os, "environ", {**os.environ, "NAMESRV_ADDR": "a:1"})
        self.assertIsNone(BrokerSettings().broker.namesrv_addr)

    def test_settings_objects_share_no_state(self):
        first, second = BrokerSettings(), BrokerSettings()
        first.update("brokerPermission=4")
        first.update("brokerName=x")
        self.assertEqual((second.broker.broker_permission, second.pending), (6, {}))


class LoadTestCase(SynchronousTestCase):
    def file(self, text, name="broker.conf"):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def load(self, text=None, *overrides, daemon=BrokerSettings, **kwargs):
        return daemon.load(self.file(text) if text is not None else None, overrides, **kwargs)

    def error(self, text=None, *overrides, **kwargs):
        message = str(self.assertRaises(ConfigError, self.load, text, *overrides, **kwargs))
        self.assertNotIn("\n", message)
        return message


class LoadTests(LoadTestCase):
    def test_apaches_sample_starts_unchanged(self):
        settings, warnings = self.load(
            "#  Licensed ...\n\nbrokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n"
            "deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n"
        )
        self.assertEqual(warnings, [])
        self.assertEqual((settings.broker.broker_name, settings.store.file_reserved_time), ("broker-a", 48))

    def test_option_wins_over_file_and_file_over_environment(self):
        environ = {"NAMESRV_ADDR": "env:1"}
        self.assertEqual(self.load(environ=environ)[0].broker.namesrv_addr, "env:1")
        self.assertEqual(self.load("namesrvAddr=file:1", environ=environ)[0].broker.namesrv_addr, "file:1")
        override = ("namesrvAddr", "option:1")
        self.assertEqual(self.load("namesrvAddr=file:1", override)[0].broker.namesrv_addr, "option:1")
        self.assertEqual(self.load("", override, namesrv_addr="n:1")[0].broker.namesrv_addr, "n:1")

    def test_last_value_of_repeated_key_wins(self):
        self.assertEqual(self.load("listenPort=1\nlistenPort=2")[0].server.listen_port, 2)

    def test_key_of_two_groups_sets_both(self):
        settings, _ = self.load("writeBufferHighWaterMark=77")
        self.assertEqual(
            (settings.server.write_buffer_high_water_mark, settings.client.write_buffer_high_water_mark), (77, 77)
        )

    def test_aliases_yield_to_the_name(self):
        sndbuf = "com.rocketmq.remoting.socket.sndbuf.size"
        settings, (warning,) = self.load(f"serverSocketSndBufSize=5\n{sndbuf}=7\nenableBatchPush=true")
        self.assertEqual(
            (settings.server.server_socket_snd_buf_size, settings.client.client_socket_snd_buf_size), (5, 7)
        )
        self.assertTrue(settings.store.is_enable_batch_push)
        self.assertTrue(warning.endswith(": enableBatchPush"), warning)

    def test_settings_without_effect_are_named_in_one_warning(self):
        path = self.file("highSpeedMode=true\nbrokerName=b\ncom.rocketmq.remoting.client.worker.size=2\n")
        environ = {"ROCKETMQ_HOME": "/home"}
        _, warnings = BrokerSettings.load(path, [("filterServerNums", "2")], environ)
        self.assertEqual(
            warnings,
            [
                f"{path}, -o: set, but without effect in rocketd (docs/settings.md says why): "
                "com.rocketmq.remoting.client.worker.size, highSpeedMode, filterServerNums"
            ],
        )
        # The environment is for all programs of a machine, not for this one only.
        self.assertEqual(NamesrvSettings.load(None, (), environ)[1], [])

    def test_settings_without_effect_are_named_by_their_daemon_only(self):
        option = ("serverAsyncSemaphoreValue", "7")
        self.assertEqual(self.load(None, option)[1], [])
        (warning,) = self.load(None, option, daemon=NamesrvSettings)[1]
        self.assertTrue(warning.endswith(": serverAsyncSemaphoreValue"), warning)

    def test_unknown_key_is_a_warning_with_the_nearest_key(self):
        path = self.file("\nbrokerIp1=10.0.0.1\nnothingLikeIt=1\n")
        settings, warnings = BrokerSettings.load(path, [("listenport", "1")])
        self.assertEqual(
            warnings,
            [
                f"{path}:2: unknown key brokerIp1 is ignored; did you mean brokerIP1?",
                f"{path}:3: unknown key nothingLikeIt is ignored",
                "-o: unknown key listenport is ignored; did you mean listenPort?",
            ],
        )
        self.assertIsNone(settings.broker.broker_ip1)

    def test_bad_value_error_has_place_key_value_and_accepted_values(self):
        path = self.file("a=b\nlistenPort = abc\n")
        error = self.assertRaises(ConfigError, BrokerSettings.load, path)
        self.assertEqual(str(error), f"{path}:2: listenPort = abc: accepted is a whole number from 0 to 65535")
        self.assertEqual(self.error(None, ("traceOn", "yes")), "-o: traceOn = yes: accepted is true or false")
        self.assertEqual(
            self.error(environ={"NAMESRV_ADDR": "foo"}),
            "environment variable NAMESRV_ADDR: namesrvAddr = foo: accepted is host:port, several separated by "
            "semicolons, like 127.0.0.1:9876;[::1]:9876",
        )
        self.assertIn("-n: namesrvAddr = a;b", self.error(namesrv_addr="a;b"))

    def test_multiline_bad_value_gives_one_line_error(self):
        self.assertIn("listenPort", self.error("listenPort=1\\n2"))

    def test_unreadable_files_are_errors(self):
        self.assertEqual(
            str(self.assertRaises(ConfigError, BrokerSettings.load, "/nowhere/x.conf")),
            "/nowhere/x.conf: cannot be read: No such file or directory",
        )
        self.assertIn("cannot be read", str(self.assertRaises(ConfigError, BrokerSettings.load, "/")))
        path = self.file("a=\\u1")
        self.assertIn(f"{path}: line 1: malformed", str(self.assertRaises(ConfigError, BrokerSettings.load, path)))

    def test_utf16_file(self):
        for encoding, kind in (("utf-16", "UTF-16:"), ("utf-16-le", "UTF-16 or not a text:")):
            path = self.file("brokerName=a\n".encode(encoding))
            error = str(self.assertRaises(ConfigError, BrokerSettings.load, path))
            self.assertEqual(error, f"{path}: it has NUL bytes and so is {kind} accepted is UTF-8 (or Latin-1)")

    def test_control_characters_of_keys_are_never_shown_raw(self):
        settings, (warning,) = BrokerSettings.load(None, [("a\0\x1b[2Jb", "1")])
        self.assertEqual(warning, r"-o: unknown key a\x00\x1b[2Jb is ignored")
        (result,) = settings.update("a\\u001bb=1")
        self.assertEqual(str(result), r"a\x1bb: unknown key")

    def test_latin1_file(self):
        self.assertEqual(self.load("brokerName=é".encode("latin-1"))[0].broker.broker_name, "é")

    def test_home_and_host(self):
        settings, _ = self.load(home="/home/u")
        self.assertEqual(settings.store.store_path_commit_log, "/home/u/store/commitlog")
        self.assertEqual(settings.broker.broker_name, settings.machine.host_name)

    def test_environment_of_the_serialize_type(self):
        settings, _ = self.load(environ={"ROCKETMQ_SERIALIZE_TYPE": "ROCKETMQ", "ROCKETMQ_HOME": "/opt/mq"})
        self.assertEqual((settings.remoting.serialize_type, settings.broker.rocketmq_home), ("ROCKETMQ", "/opt/mq"))

    def test_unknown_serialize_type_ends_the_start(self):
        error = self.assertRaises(ConfigError, self.load, environ={"ROCKETMQ_SERIALIZE_TYPE": "FOO"})
        self.assertIn("JSON, ROCKETMQ", str(error))

    def test_name_server(self):
        path = self.file("listenPort=1\nkvConfigPath=/x\nconfigStorePath=/y\ntls.server.mode=enforcing")
        settings, warnings = NamesrvSettings.load(path, namesrv_addr="ignored:1")
        self.assertEqual(warnings, [])
        self.assertEqual((settings.server.listen_port, settings.namesrv.kv_config_path), (1, "/x"))
        self.assertEqual(settings.namesrv.config_store_path, os.path.abspath(path))
        self.assertEqual(settings.tls.server_mode, "enforcing")
        settings, _ = NamesrvSettings.load(path, [("configStorePath", "/z")])
        self.assertEqual(settings.namesrv.config_store_path, "/z")
        settings, _ = NamesrvSettings.load(home="/h")
        self.assertEqual(settings.namesrv.config_store_path, "/h/namesrv/namesrv.properties")


class KeptChangesTests(LoadTestCase):
    def setUp(self):
        self.root = os.path.dirname(self.file(""))
        self.kept = os.path.join(self.root, "config", KEPT_CHANGES)
        self.option = ("storePathRootDir", self.root)

    def keep(self, path=None, given=False, beside=None, **changes):
        keep_settings(RealFileSystem(), path or self.kept, changes, given=given, beside=beside)

    def test_next_start_reads_kept_changes(self):
        self.keep(listenPort="5", brokerName="b")
        self.keep(listenPort="6")
        settings, warnings = self.load(None, self.option)
        self.assertEqual((settings.server.listen_port, settings.broker.broker_name), (6, "b"))
        self.assertEqual(warnings, [f"{self.kept}: settings changed by request are in effect: listenPort, brokerName"])

    def test_kept_changes_rank_between_environment_and_file(self):
        self.keep(namesrvAddr="kept:1")
        settings, _ = self.load(None, self.option, environ={"NAMESRV_ADDR": "env:1"})
        self.assertEqual(settings.broker.namesrv_addr, "kept:1")
        settings, warnings = self.load("namesrvAddr=file:1", self.option)
        self.assertEqual((settings.broker.namesrv_addr, warnings), ("file:1", []))
        settings, warnings = self.load(None, self.option, ("namesrvAddr", "option:1"))
        self.assertEqual((settings.broker.namesrv_addr, warnings), ("option:1", []))
        settings, warnings = self.load("brokerName=b", self.option)
        self.assertEqual((settings.broker.namesrv_addr, len(warnings)), ("kept:1", 1))

    def test_unusable_kept_values_fail_start_with_their_file(self):
        self.keep(brokerRole="SLAVE")
        text = self.error(None, self.option)
        self.assertIn("a SLAVE needs a whole number", text)
        self.assertTrue(text.endswith(f"(settings changed by request are in {self.kept}: correct or remove it)"), text)
        self.keep(brokerRole="SLAVER")
        self.assertIn(f"{self.kept}:2: brokerRole = SLAVER: accepted is", self.error(None, self.option))

    def test_start_errors_name_file_of_kept_changes(self):
        self.keep(listenPort="5")
        hint = f" (settings changed by request are in {self.kept}: correct or remove it)"
        self.assertEqual(self.load(None, self.option)[0].start_hint, hint)
        self.assertEqual(self.load(None, self.option, ("listenPort", "6"))[0].start_hint, "")

    def test_kept_paths_are_ignored(self):
        self.keep(storePathCommitLog="/elsewhere")
        settings, warnings = self.load(None, self.option)
        self.assertEqual(settings.store.store_path_commit_log, f"{self.root}/commitlog")
        self.assertEqual(warnings, [f"{self.kept}:2: storePathCommitLog is ignored: set it with --config or --option"])

    def test_foreign_changes_file_is_set_aside(self):
        path = os.path.join(self.root, "namesrv", "namesrv.properties")
        os.mkdir(os.path.dirname(path))
        for number, aside in enumerate((".old", ".old2")):
            Path(path).write_text(f"listenPort={number}\n")
            settings, warnings = self.load(None, daemon=NamesrvSettings, home=self.root)
            self.assertEqual(settings.server.listen_port, 9876)
            self.assertEqual(warnings, [f"{path}: not read: rocketd did not write it; give it with --config to use it"])
            self.assertEqual(self.load("", daemon=NamesrvSettings, home=self.root)[1], [])
            self.keep(settings.kept_changes_file(), listenPort="7")
            self.assertEqual(Path(path + aside).read_text(), f"listenPort={number}\n")
            self.assertEqual(self.load(None, daemon=NamesrvSettings, home=self.root)[0].server.listen_port, 7)

    def test_kept_value_moves_to_given_file(self):
        self.keep(listenPort="77")
        path = self.file("brokerName=a\n")
        settings, _ = BrokerSettings.load(path, [self.option])
        self.assertEqual(settings.changes_file, self.kept)
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        for beside in (self.kept, os.path.join(self.root, "none")):
            self.keep(path, given=True, beside=beside, listenPort="88", brokerPermission="4")
        self.assertEqual(events, [])
        settings, _ = self.load(None, self.option)
        self.assertEqual((settings.server.listen_port, settings.broker.broker_permission), (88, 6))
        self.assertFalse(os.path.exists(os.path.join(self.root, "none")))
        Path(self.kept).write_text("listenPort=5\n")
        self.keep(path, given=True, beside=self.kept, listenPort="6")
        self.assertEqual(Path(self.kept).read_text(), "listenPort=5\n")

    def test_unreplaceable_older_kept_value_is_logged(self):
        path = self.file("")
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        os.makedirs(self.kept)
        self.keep(path, given=True, beside=self.kept, listenPort="88")
        self.assertEqual(Path(path).read_text(), "listenPort=88\n")
        (line,) = [formatEvent(event) for event in events]
        self.assertIn(f"{self.kept} may have older values of listenPort; a start without --config uses it: ", line)

    def test_changes_are_stored_in_given_configuration_file(self):
        path = self.file("# mine\nlistenPort = 1\n")
        self.keep(path, given=True, listenPort="2")
        self.assertEqual(Path(path).read_text(), "# mine\nlistenPort=2\n")
        for daemon in (BrokerSettings, NamesrvSettings):
            self.assertEqual(
                daemon.load(path, [self.option] if daemon is BrokerSettings else [])[0].server.listen_port, 2
            )


class RuleTests(LoadTestCase):
    def test_master_always_has_broker_id_0(self):
        settings, warnings = self.load("brokerRole=SYNC_MASTER\nbrokerId=3")
        self.assertEqual(settings.broker.broker_id, 0)
        self.assertEqual(len(warnings), 1)
        self.assertRegex(warnings[0], r"broker\.conf:2: brokerId = 3: brokerRole SYNC_MASTER means brokerId 0")

    def test_slave_without_broker_id_is_refused(self):
        self.assertIn("default: brokerId = 0: a SLAVE needs", self.error("brokerRole=SLAVE"))
        self.assertIn("broker.conf:2: brokerId = -1: a SLAVE needs", self.error("brokerRole=SLAVE\nbrokerId=-1"))

    def test_slave_default_memory_ratio_is_30(self):
        settings, warnings = self.load("brokerRole=SLAVE\nbrokerId=1")
        self.assertEqual((settings.store.access_message_in_memory_max_ratio, warnings), (30, []))
        settings, _ = self.load("brokerRole=SLAVE\nbrokerId=1\naccessMessageInMemoryMaxRatio=40")
        self.assertEqual(settings.store.access_message_in_memory_max_ratio, 40)

    def test_replication_port(self):
        self.assertEqual(self.load()[0].store.ha_listen_port, 10912)
        self.assertEqual(self.load("listenPort=30911")[0].store.ha_listen_port, 30912)
        self.assertEqual(self.load("listenPort=0")[0].store.ha_listen_port, 0)
        self.assertEqual(self.load("listenPort=30911\nhaListenPort=5")[0].store.ha_listen_port, 5)
        self.assertEqual(self.load("listenPort=65535\nhaListenPort=5")[0].store.ha_listen_port, 5)
        self.assertIn("broker.conf:1: listenPort = 65535: there is no port behind it", self.error("listenPort=65535"))
        self.assertIn("broker.conf:1: haListenPort = 10909: that is listenPort - 2", self.error("haListenPort=10909"))

    def test_empty_broker_name(self):
        settings, _ = self.load("brokerName=")
        self.assertEqual(settings.broker.broker_name, settings.machine.host_name)

    def test_commit_log_directory(self):
        self.assertEqual(self.load("storePathRootDir=/d")[0].store.store_path_commit_log, "/d/commitlog")
        self.assertEqual(self.load("storePathRootDir=/d\nstorePathCommitLog=/c")[0].store.store_path_commit_log, "/c")

    def test_dledger_setting_is_refused(self):
        self.assertIn("broker.conf:1: enableDLegerCommitLog", self.error("enableDLegerCommitLog=true"))

    def test_outgoing_tls_follows_server_mode_unless_set(self):
        self.assertFalse(self.load()[0].client.use_tls)
        self.assertTrue(self.load("tls.server.mode=enforcing")[0].client.use_tls)
        self.assertFalse(self.load("tls.server.mode=enforcing\ntls.enable=false")[0].client.use_tls)
        self.assertTrue(self.load("tls.enable=true")[0].client.use_tls)
        self.assertFalse(self.load("tls.enable=true\nuseTLS=false")[0].client.use_tls)


class TlsFileTests(LoadTestCase):
    def test_file_yields_to_the_config_file(self):
        tls = self.file(
            "tls.server.keyPath=/k\ntls.server.certPath=/c\ntls.server.mode=disabled\ntypo.key=1", "tls.properties"
        )
        settings, warnings = self.load(f"tls.config.file={tls}\ntls.server.certPath=/other")
        self.assertEqual((settings.tls.server_key_path, settings.tls.server_cert_path), ("/k", "/other"))
        self.assertEqual(settings.tls.server_mode, "permissive")
        self.assertEqual(warnings, [f"{tls}:4: unknown key typo.key is ignored"])

    def test_named_tls_file_must_exist(self):
        self.assertEqual(
            self.error(None, ("tls.config.file", "/nowhere")), "/nowhere: cannot be read: No such file or directory"
        )

    def test_passwords_are_not_printed(self):
        settings, _ = self.load("tls.server.keyPassword=hunter2")
        self.assertEqual(settings.tls.server_key_password, "hunter2")
        self.assertNotIn("hunter2", settings.printed() + settings.properties_text() + repr(settings))
        self.assertIn("# tls.server.keyPassword=******", settings.printed())


class PrintTests(LoadTestCase):
    TEXT = "brokerRole=SLAVE\nbrokerId=2\nnamesrvAddr=a:1\nstorePathRootDir=/d e\\\\f\nbrokerIP1=h\nmessageStorePlugIn=\\ x"

    def test_printed_settings_are_read_back(self):
        for daemon, text in ((BrokerSettings, self.TEXT), (NamesrvSettings, "orderMessageEnable=true")):
            first, _ = self.load(text, daemon=daemon)
            second, (warning,) = self.load(first.printed(), daemon=daemon)
            self.assertIn("set, but without effect", warning)
            self.assertEqual(
                list(second.effective()),
                [(s, v if s.name != "configStorePath" else second.config_file) for s, v in first.effective()],
            )

    def test_keys_are_printed_once_with_their_docs(self):
        printed = BrokerSettings().printed()
        for key, setting in BrokerSettings.by_name().items():
            self.assertEqual(printed.count(f"\n{key}=") + printed.count(f"\n# {key} is not set\n"), 1, key)
            self.assertIn("# " + setting.doc, printed)

    def test_important_only(self):
        printed = BrokerSettings().printed(important_only=True)
        self.assertIn("\nbrokerName=", printed)
        self.assertNotIn("maxDelayTime", printed)

    def test_answer_to_get_config_is_apaches(self):
        """Fed with Apache's own answer, we give the same answer back, line by line."""
        for daemon, name in (
            (BrokerSettings, "broker-4.9.7.properties"),
            (NamesrvSettings, "namesrv-4.9.7.properties"),
        ):
            apaches = (CONFIGS / name).read_text()
            settings, (warning,) = daemon.load(None, pairs(apaches))
            self.assertIn("set, but without effect", warning)
            ours = set(settings.properties_text().splitlines())
            # Apache derives this path when it is read and leaves it out of the answer.
            ours -= (
                {"storePathCommitLog=" + str(settings.get("storePathCommitLog"))} if daemon is BrokerSettings else set()
            )
            ours = {line for line in ours if line.partition("=")[0] not in OF_OUR_OWN}
            self.assertEqual(ours, set(apaches.splitlines()))

    def test_defaults_are_apaches(self):
        """The captured broker ran on two CPUs with these keys set; all else is at its default."""
        was_set = {
            "bitMapLengthConsumeQueueExt", "brokerIP1", "brokerIP2", "brokerName", "configStorePath",
            "enablePropertyFilter", "haListenPort", "kvConfigPath", "listenPort", "mappedFileSizeCommitLog",
            "mappedFileSizeConsumeQueue", "namesrvAddr", "rocketmqHome", "storePathRootDir", "transactionCheckInterval",
            "transactionTimeOut", "waitTimeMillsInSendQueue",
        }  # fmt: skip
        self.patch(os, "cpu_count", lambda: 2)
        for daemon, name in (
            (BrokerSettings, "broker-4.9.7.properties"),
            (NamesrvSettings, "namesrv-4.9.7.properties"),
        ):
            settings, _ = daemon.load()
            for key, value in pairs((CONFIGS / name).read_text()):
                if key not in was_set | OTHER_DEFAULTS:
                    self.assertEqual(text_of(settings.get(key)), value, key)

    def test_get_of_unknown_key_fails(self):
        self.assertRaises(KeyError, BrokerSettings().get, "nothing")


class UpdateTests(SynchronousTestCase):
    def one(self, settings, text):
        (result,) = settings.update(text)
        return result

    def test_update_of_live_setting_applies_at_once(self):
        settings = BrokerSettings()
        result = self.one(settings, "brokerPermission=4\n")
        self.assertEqual(
            (result.outcome, result.accepted, str(result)),
            (UpdateResult.APPLIED, True, "brokerPermission: applied now"),
        )
        self.assertEqual(settings.broker.broker_permission, 4)
        self.assertEqual(settings.pending, {})

    def test_update_of_restart_setting_is_pending(self):
        settings = BrokerSettings(broker=BrokerConfig(broker_name="a"))
        result = self.one(settings, "brokerName = b")
        self.assertEqual((result.outcome, result.accepted), (UpdateResult.RESTART, True))
        self.assertEqual((settings.broker.broker_name, settings.pending), ("a", {"brokerName": "b"}))

    def test_take_of_fresh_settings_applies_live_values_only(self):
        settings = BrokerSettings(broker=BrokerConfig(broker_name="a"))
        settings.pending["brokerName"] = "c"
        fresh = BrokerSettings(broker=BrokerConfig(broker_name="b", broker_permission=4))
        self.assertEqual(settings.take(fresh), (["brokerPermission"], ["brokerName"]))
        self.assertEqual((settings.broker.broker_name, settings.broker.broker_permission), ("a", 4))
        self.assertEqual(settings.take(settings), ([], []))

    def test_update_of_unknown_key_suggests_similar_one(self):
        result = self.one(BrokerSettings(), "brokerPermision=4")
        self.assertEqual((result.outcome, result.accepted), (UpdateResult.UNKNOWN, False))
        self.assertEqual(str(result), "brokerPermision: unknown key (did you mean brokerPermission?)")

    def test_update_with_bad_value_is_refused(self):
        settings = BrokerSettings()
        result = self.one(settings, "brokerPermission=9")
        self.assertEqual((result.outcome, result.accepted), (UpdateResult.BAD_VALUE, False))
        self.assertEqual(str(result), "brokerPermission: bad value (9: accepted is a whole number from 0 to 7)")
        self.assertEqual(settings.broker.broker_permission, 6)
        self.assertIs(self.one(settings, "namesrvAddr=foo").outcome, UpdateResult.BAD_VALUE)

    def test_paths_and_credentials_cannot_be_changed_by_request(self):
        settings = BrokerSettings()
        keys = [key for key in BrokerSettings.by_name() if "Path" in key or "assword" in key]
        self.assertIn("storePathRootDir", keys)
        keys += ["rocketmqHome", "logDir"]
        for key in keys:
            self.assertIs(self.one(settings, f"{key}=/x").outcome, UpdateResult.REFUSED, key)
        self.assertEqual(settings.pending, {})
        for key in ("kvConfigPath", "configStorePath"):
            self.assertIs(self.one(NamesrvSettings(), f"{key}=/x").outcome, UpdateResult.REFUSED)

    def test_update_results_are_per_key(self):
        settings = BrokerSettings()
        results = settings.update("traceOn=nope\ndefaultTopicQueueNums=16\nfoo=1")
        self.assertEqual([r.accepted for r in results], [False, True, False])
        self.assertEqual(settings.broker.default_topic_queue_nums, 16)

    def test_update_with_malformed_properties_is_refused(self):
        self.assertRaises(ValueError, BrokerSettings().update, "a=\\u1")

    def test_update_to_current_value_clears_pending(self):
        settings = BrokerSettings(broker=BrokerConfig(broker_name="a"))
        self.one(settings, "brokerName=b")
        self.assertIn("rocketd.pending.brokerName=b\n", settings.properties_text())
        self.assertIs(self.one(settings, "brokerName=a").outcome, UpdateResult.APPLIED)
        self.assertEqual(settings.pending, {})
        self.assertNotIn("rocketd.pending", settings.properties_text())

    def test_change_breaking_next_start_is_refused(self):
        settings = BrokerSettings()
        result = self.one(settings, "brokerRole=SLAVE")
        self.assertIs(result.outcome, UpdateResult.BAD_VALUE)
        self.assertIn("the next start would fail: default: brokerId = 0: a SLAVE needs", result.explanation)
        self.assertEqual(settings.pending, {})
        self.assertIs(self.one(settings, "enableDLegerCommitLog=true").outcome, UpdateResult.BAD_VALUE)
        self.assertIs(self.one(settings, "listenPort=65535").outcome, UpdateResult.BAD_VALUE)
        results = settings.update("brokerRole=SLAVE\nbrokerId=1")
        self.assertEqual([result.outcome for result in results], [UpdateResult.RESTART] * 2)
        self.assertEqual(settings.pending, {"brokerRole": "SLAVE", "brokerId": "1"})

    def test_ha_port_equal_to_client_port_is_refused(self):
        settings, _ = BrokerSettings.load(None, [("listenPort", "30911")])
        for port, used in ((30911, "that is listenPort;"), (30909, "that is listenPort - 2, which older clients use;")):
            result = self.one(settings, f"haListenPort={port}")
            self.assertIs(result.outcome, UpdateResult.BAD_VALUE)
            self.assertIn(f"next start would fail: with this change: haListenPort = {port}: {used}", result.explanation)
        settings, _ = BrokerSettings.load(None, [("haListenPort", "30911")])
        for port in (30911, 30913):
            self.assertIn(
                "haListenPort = 30911: that is listenPort", self.one(settings, f"listenPort={port}").explanation
            )
        for text in ("listenPort=2\nhaListenPort=0", "listenPort=0", "listenPort=30912"):
            self.assertEqual({result.outcome for result in settings.update(text)}, {UpdateResult.RESTART}, text)

    def test_update_asks_daemon_for_start_faults(self):
        settings = BrokerSettings(broker=BrokerConfig(broker_name="a"))
        tried = []
        settings.start_fault = lambda other: tried.append(other.broker.broker_name) or "no room"
        result = self.one(settings, "brokerName=b")
        self.assertEqual((result.outcome, tried), (UpdateResult.BAD_VALUE, ["b"]))
        self.assertEqual(result.explanation, "the next start would fail: no room")
        self.assertEqual((settings.pending, settings.broker.broker_name), ({}, "a"))

    def test_change_overridden_by_option_says_so(self):
        settings, _ = BrokerSettings.load(None, [("brokerName", "a"), ("brokerPermission", "6")])
        for text in ("brokerName=b", "brokerPermission=4"):
            result = self.one(settings, text)
            self.assertIn("an option of the command line sets it at each start and has precedence", str(result))
            self.assertTrue(result.accepted)  # for a start without the option
        self.assertEqual(settings.pending, {})
        self.assertIn("brokerPermission: applied now (an option", update_remark([result]))

    def test_changes_are_kept_by_the_name_of_the_setting(self):
        results = BrokerSettings().update("rocketmq.namesrv.addr=a:1\nnoSuchKey=1")
        self.assertEqual(changes_of(results), {"namesrvAddr": "a:1"})

    def test_update_with_repeated_key_applies_last_value(self):
        settings = BrokerSettings()
        self.assertEqual(self.one(settings, "brokerPermission=2\nbrokerPermission=4").text, "4")
        self.assertEqual(settings.broker.broker_permission, 4)

    def test_accepted_changes_go_into_the_file(self):
        results = BrokerSettings().update("brokerPermission=4\nfoo=1\nbrokerName=b")
        text = properties_file.edit("# mine\nbrokerName=a\n", {r.key: r.text for r in results if r.accepted})
        self.assertEqual(text, "# mine\nbrokerName=b\nbrokerPermission=4\n")


class GroupTests(SynchronousTestCase):
    def test_groups_of_the_daemons(self):
        self.assertEqual(
            [name for name, _, _ in NamesrvSettings.groups()][1:],
            [*("server", "limits", "log", "metrics", "process", "remoting", "tls")],
        )
        self.assertEqual(
            [name for name, _, _ in BrokerSettings.groups()],
            ["broker", "server", "limits", "log", "metrics", "process", "client", "store", "remoting", "tls"],
        )

    def test_base_settings_have_no_groups(self):
        self.assertEqual(DaemonSettings.groups(), ())
        self.assertEqual(DaemonSettings().derive({}), [])
