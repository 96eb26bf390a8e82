"""``rocketd adopt`` and ``rocketd give-back``, on stores that Apache's broker 4.9.7 has written."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.timer.records import note_done
from rocketd.common.names import TIMER_TOPIC
from rocketd.common.settings import properties_file
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.table_journal import TableJournal
from rocketd.store.message_store import MessageStore
from rocketd.store.offline.examine_log import LogWalk
from rocketd.store.testing import BORN_HOST, STORE_HOST, make_message, small_config
from rocketd.tools.cli import main
from rocketd.tools.migration import proof
from rocketd.tools.migration.own import OTHER_DEFAULTS, OWN_SETTINGS
from tests.support.apache_stores import unpack_store
from tests.support.places import ROOT

GOLDEN = ROOT / "tests" / "golden"
SIZES = (
    "mappedFileSizeCommitLog=262144",
    "mappedFileSizeConsumeQueue=6000",
    "maxHashSlotNum=2000",
    "maxIndexNum=4000",
)
MESSAGES = {"VecOrders": 1302, "VecLogs": 331, "SCHEDULE_TOPIC_XXXX": 3}
UNSET = {
    "dLegerGroup", "dLegerPeers", "dLegerSelfId", "haMasterAddress", "preferredLeaderId", "readOnlyCommitLogStorePaths",
    "storePathCommitLog", "storePathDLedgerCommitLog",
}  # fmt: skip
"""Settings of Apache's without a default: its broker does not print them."""
NAME_SERVERS = "namesrvAddr=127.0.0.1:9876"
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


class MigrationTestCase(SynchronousTestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        unpack_store("store-clean", self.directory)
        self.store = self.directory / "store-clean"
        self.home = self.directory / "rocketmq"
        self.config = self.home / "conf" / "broker.conf"
        self.config.parent.mkdir(parents=True)
        self.write()

    def write(self, *lines, root=None):
        self.config.write_text(
            "".join(f"{line}\n" for line in (f"storePathRootDir={root or self.store}", NAME_SERVERS, *SIZES, *lines))
        )

    def run_command(self, *words):
        out, err = TextIOWrapper(BytesIO(), "utf-8"), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
            sys.stdout.flush()
        return status, out.buffer.getvalue().decode(), err.getvalue()

    def look(self, name="adopt", *options, place=None):
        """Run a command with --json; return its status and its object."""
        status, out, err = self.run_command(name, str(place or self.config), "--json", *options)
        self.assertEqual(err, "")
        return status, json.loads(out)

    def findings(self, name="adopt", *options, place=None):
        """Return the findings that are not about the store, as (level, subject) with their texts."""
        _, found = self.look(name, *options, place=place)
        return {(each["level"], each["subject"]): each["text"] for each in found["findings"]}

    def contents(self):
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(self.store.rglob("*"))
            if path.is_file()
        }


class ProofTests(MigrationTestCase):
    def test_sound_store_of_apache_is_ready_and_unchanged(self):
        before = self.contents()
        status, found = self.look()
        self.assertEqual((status, found["ready"], found["findings"]), (0, True, []))
        numbers = found["numbers"]
        self.assertEqual({topic: numbers["messages"][topic] for topic in MESSAGES}, MESSAGES)
        self.assertEqual((numbers["records"], numbers["offsets"], numbers["delayed"]), (1641, 6, 2))
        self.assertEqual(self.contents(), before)

    def test_copy_without_lock_file_is_read_and_unchanged(self):
        (self.store / "lock").unlink()
        before = self.contents()
        self.assertEqual(self.look()[0], 0)
        self.assertEqual(self.contents(), before)

    def test_place_may_be_file_installation_or_store(self):
        for place in (self.config, self.home, self.store):
            status, found = self.look(place=place)
            self.assertEqual((status, found["root"]), (0, str(self.store)))
        status, _, err = self.run_command("adopt", str(self.directory))
        self.assertEqual(status, 2)
        self.assertIn("neither a store", err)

    def test_one_changed_byte_is_named_with_its_place(self):
        path = self.store / "commitlog" / "00000000000000262144"
        with path.open("r+b") as file:
            file.seek(100_000)
            byte = file.read(1)
            file.seek(100_000)
            file.write(bytes([byte[0] ^ 1]))
        for name in ("adopt", "give-back"):
            status, found = self.look(name)
            self.assertEqual(status, 1)
            wrong = [each for each in found["findings"] if each["level"] == "wrong"]
            self.assertTrue(any("commitlog/00000000000000262144 at " in each["text"] for each in wrong), wrong)
            repair = f"rocketd store repair --write --replace-damaged --config {self.config} {self.store}"
            self.assertIn(repair, wrong[0]["remedy"])
            self.assertTrue(all(f" --config {self.config} " in each["remedy"] for each in wrong), wrong)
        for place, options in ((self.store, ()), (self.config, ("-o", f"storePathCommitLog={path.parent}"))):
            _, found = self.look("adopt", *options, place=place)
            remedies = [each["remedy"] for each in found["findings"] if each["level"] == "wrong"]
            self.assertTrue(all("write a configuration file" in remedy for remedy in remedies), remedies)
            self.assertTrue(all(" --config FILE " in remedy for remedy in remedies), remedies)

    def test_quick_reads_newest_files_only(self):
        with (self.store / "commitlog" / "00000000000000000000").open("r+b") as file:
            file.write(bytes(262144 - 1000))
        self.assertEqual(self.look()[0], 1)
        status, found = self.look("adopt", "--quick")
        self.assertEqual(status, 0, found["findings"])
        self.assertLess(found["numbers"]["records"], 1641)
        (finding,) = found["findings"]
        self.assertIn("2 of 3 log files", finding["text"])
        self.assertIn("without --quick", finding["remedy"])
        self.assertEqual((found["partial"], found["numbers"]["logBegin"]), (True, 262144))
        _, out, _ = self.run_command("adopt", str(self.config), "--quick")
        self.assertIn(f"{self.store}: ready as far as it was read\n", out)

    def test_partial_look_finds_lost_files(self):
        path = self.store / "commitlog" / "00000000000000000000"
        content = path.read_bytes()
        middle = self.store / "commitlog" / "00000000000000262144"
        for option in ("--quick", "--while-running"):
            path.write_bytes(content[:100_000])
            self.assertIn("has 100000 bytes instead of 262144", self.wrong_texts(option))
            path.write_bytes(bytes(len(content)))
            self.assertIn("has no message", self.wrong_texts(option))
            path.write_bytes(content)
            middle.rename(self.directory / "kept")
            self.assertIn("missing", self.wrong_texts(option))
            (self.directory / "kept").rename(middle)
            self.assertEqual(self.wrong_texts(option), "")

    def wrong_texts(self, *options):
        return "".join(each["text"] for each in self.look("adopt", *options)[1]["findings"] if each["level"] == "wrong")

    def test_missing_tables_that_are_needed_are_found(self):
        for name in ("consumerOffset", "delayOffset", "subscriptionGroup"):
            kept = {path: path.read_bytes() for path in (self.store / "config").glob(f"{name}.json*")}
            for path in kept:
                path.unlink()
            self.assertIn(f"{name}.json is missing, and so is its .bak", self.findings()["wrong", "tables"])
            for path, content in kept.items():
                path.write_bytes(content)
        self.assertEqual(self.findings(), {})

    def test_file_of_two_directories_is_found(self):
        other = self.directory / "more"
        shutil.copytree(self.store / "commitlog", other)
        status, found = self.look("adopt", "-o", f"storePathCommitLog={self.store / 'commitlog'},{other}")
        self.assertEqual((status, found["ready"]), (1, False))
        self.assertIn("00000000000000000000", found["findings"][-1]["text"])

    def test_linked_lock_file_is_not_followed(self):
        target = self.directory / "target"
        (self.store / "lock").unlink()
        (self.store / "lock").symlink_to(target)
        target.write_bytes(b"kept")
        status, _, err = self.run_command("adopt", str(self.config))
        self.assertEqual((status, target.read_bytes()), (0, b"kept"))
        self.assertIn("not locked", err)

    def test_unreadable_table_is_found(self):
        for path in (self.store / "config").glob("consumerOffset.json*"):
            path.write_text("{")
        self.assertIn("consumerOffset.json", self.findings()["wrong", "tables"])

    def test_damaged_table_with_older_version_is_found(self):
        for name in ("topics", "subscriptionGroup", "consumerOffset", "delayOffset", "consumerFilter"):
            path = self.store / "config" / f"{name}.json"
            content = path.read_text()
            path.write_text(content[: len(content) // 2])
            self.assertIn(f"{path} is damaged or missing", self.findings()["wrong", "tables"])
            path.write_text(content)
        self.assertEqual(self.findings(), {})

    def test_lost_topics_are_found(self):
        for path in (self.store / "config").glob("topics.json*"):
            path.unlink()
        self.assertIn("VecLogs, VecOrders", self.findings()["wrong", "tables"])

    def test_offset_beyond_its_queue_is_found(self):
        path = self.store / "config" / "consumerOffset.json"
        table = json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', path.read_text()))
        table["offsetTable"]["VecOrders@late"] = {"1": 10**6}
        table["offsetTable"]["VecOrders@$(id)"] = {"1": 10**6}
        path.write_text(json.dumps(table))
        _, found = self.look()
        late, odd = sorted(found["findings"], key=lambda each: each["subject"], reverse=True)
        self.assertIn("queue 1: 1000000 of ", late["text"])
        self.assertIn("queue 1: rocketd offset show late --topic VecOrders", late["remedy"])
        self.assertNotIn("$(id)", odd["remedy"])

    def test_only_group_with_a_valid_name_is_an_example(self):
        path = self.store / "config" / "consumerOffset.json"
        path.write_text(json.dumps({"offsetTable": {"VecLogs@$(id)": {"0": 1}, "VecLogs@--x": {"0": 1}}}))
        commands = [each["command"] for each in self.look()[1]["commands"]]
        self.assertTrue(any("offset show GROUP " in command for command in commands), commands)

    def test_paths_in_commands_are_quoted(self):
        odd = self.directory / "a b;c\x1b"
        self.store.rename(odd)
        self.write(root=odd)
        (odd / "config" / "topics.json").write_text("{")
        _, found = self.look()
        (wrong,) = [each for each in found["findings"] if each["level"] == "wrong"]
        topics = odd / "config" / "topics.json"
        self.assertIn(f"cp '{topics}.bak' '{topics}'", wrong["remedy"])
        _, out, _ = self.run_command("adopt", str(odd))
        self.assertNotIn("\x1b", out)
        _, out, _ = self.run_command("adopt", str(self.config), "-o", "brokerName=a\x1bb")
        self.assertNotIn("\x1b", out)

    def test_commands_end_with_the_proof_if_something_is_wrong(self):
        self.write("brokerId=x")
        for name in ("adopt", "give-back"):
            _, found = self.look(name)
            (step,) = found["commands"]
            self.assertEqual(step["command"], f"rocketd {name} {self.config}")
            _, found = self.look(name, place=self.store)
            (step,) = found["commands"]
            self.assertEqual(step["command"], f"rocketd {name} FILE")

    def test_lost_log_is_found(self):
        shutil.rmtree(self.store / "commitlog")
        self.assertEqual(list(self.findings()), [("wrong", "store")])

    def test_other_sizes_of_files_are_found(self):
        self.config.write_text(f"storePathRootDir={self.store}\n{NAME_SERVERS}\n")
        found = self.findings()
        self.assertEqual(
            set(found), {("wrong", "setting mappedFileSizeCommitLog"), ("wrong", "setting mappedFileSizeConsumeQueue")}
        )

    def test_killed_store_is_ready_with_a_note(self):
        unpack_store("store-killed", self.directory)
        self.write(root=self.directory / "store-killed")
        status, found = self.look()
        self.assertEqual(status, 0, found["findings"])
        self.assertIn("not stopped cleanly", found["findings"][0]["text"])


class RunningTests(MigrationTestCase):
    def setUp(self):
        super().setUp()
        self.holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(self.store / "lock"), "-n", "10.0.0.8:9876"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(self.holder.communicate)
        self.holder.stdout.readline()

    def test_open_store_is_refused(self):
        status, _, err = self.run_command("adopt", str(self.config))
        self.assertEqual(status, 2)
        self.assertIn(f"process {self.holder.pid}", err)

    def test_finished_files_of_open_store_are_read(self):
        status, found = self.look("adopt", "--while-running")
        self.assertEqual(status, 0, found["findings"])
        self.assertEqual(found["commands"][0]["command"], f"kill {self.holder.pid}")
        self.assertTrue(found["commands"][1]["command"].startswith("rocketd adopt "))
        self.assertTrue(0 < found["numbers"]["records"] < 1641)
        with (self.store / "commitlog" / "00000000000000000000").open("r+b") as file:
            file.seek(4)  # the mark of the first record
            file.write(b"\0")
        status, found = self.look("adopt", "--while-running")
        self.assertEqual(status, 1)
        self.assertIn("commitlog/00000000000000000000 at ", found["findings"][0]["text"])
        self.assertEqual([each["command"].split()[0] for each in found["commands"]], ["kill", "rocketd"])

    def test_offsets_are_read_before_the_log(self):
        path = self.store / "config" / "consumerOffset.json"

        class GrowingWalk(LogWalk):
            def events(self, begin=0):
                path.write_text(json.dumps({"offsetTable": {"VecLogs@shop": {"0": 10**6}}}))
                return super().events(begin)

        self.patch(proof, "LogWalk", GrowingWalk)
        self.assertEqual(set(self.findings("adopt", "--while-running")), {("note", "proof")})
        self.assertIn("shop", path.read_text())

    def test_name_servers_of_the_command_line_are_in_the_commands(self):
        self.config.write_text(self.config.read_text().replace(NAME_SERVERS, ""))
        for name in ("adopt", "give-back"):
            self.assertIn("10.0.0.8:9876", self.findings(name, "--while-running")["note", "setting namesrvAddr"])
            commands = [each["command"] for each in self.look(name, "--while-running")[1]["commands"]]
            self.assertTrue(any("broker list --namesrv 10.0.0.8:9876" in command for command in commands), commands)
            start = "--namesrv-addr 10.0.0.8:9876" if name == "adopt" else f"-c {self.config} -n 10.0.0.8:9876"
            self.assertTrue(any(command.endswith(start) for command in commands), commands)


class SettingsTests(MigrationTestCase):
    def test_each_setting_has_its_effect(self):
        self.write("brokerName=a", "sendMessageThreadPoolNums=4", "timerPrecisionMs=9", "brokerId=x")
        status, found = self.look()
        effects = {each["key"]: each["effect"] for each in found["settings"]}
        self.assertEqual(status, 1)
        self.assertEqual(
            [effects[key] for key in ("brokerName", "sendMessageThreadPoolNums", "timerPrecisionMs", "brokerId")],
            ["same", "no effect", "unknown", "refused"],
        )
        levels = {(each["level"], each["subject"]) for each in found["findings"]}
        self.assertEqual(
            levels,
            {
                ("note", "setting sendMessageThreadPoolNums"),
                ("note", "setting timerPrecisionMs"),
                ("wrong", "setting brokerId"),
            },
        )

    def test_features_that_rocketd_lacks_are_named(self):
        for line in (
            "enableDLegerCommitLog=true",
            "enableControllerMode=true",
            "storeType=defaultRocksDB",
            "messageStorePlugIn=org.example.Store",
            "authorizationEnabled=true",
        ):
            self.write(line)
            status, found = self.look()
            self.assertEqual(status, 1)
            (wrong,) = [each for each in found["findings"] if each["level"] == "wrong"]
            self.assertEqual(wrong["subject"], "setting " + line.partition("=")[0])
            self.assertEqual(found["numbers"]["records"], 1641, line)

    def test_contradicting_settings_are_wrong(self):
        self.write("brokerRole=SLAVE")
        self.assertIn("a SLAVE needs", self.findings()["wrong", "settings"])

    def test_files_of_other_features_are_named(self):
        for name in ("dledger-n0/data/0", "compaction/x", "config/tieredStoreMetadata.json", "rocks/CURRENT"):
            path = self.store / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
            self.assertIn(str(self.store / name.partition("/")[0]), self.findings()["wrong", "store"])
            path.unlink()
            if path.parent != self.store / "config":
                shutil.rmtree(self.store / name.partition("/")[0])

    def test_installation_is_looked_at(self):
        for name in ("lib", "bin"):
            (self.home / name).mkdir()
        (self.home / "lib" / "rocketmq-broker-5.3.1.jar").touch()
        with zipfile.ZipFile(self.home / "lib" / "ours.jar", "w") as jar:
            jar.writestr("META-INF/service/org.apache.rocketmq.acl.AccessValidator", "org.example.Ours")
        (self.home / "bin" / "runbroker.sh").write_text(
            'JAVA_OPT="-Drocketmq.broker.diskSpaceWarningLevelRatio=0.95 -Dtls.server.keyPassword=hush"\n'
            "# -Dtls.enable=true\n"
        )
        found = self.findings()
        self.assertIn("5.3.1", found["note", "version"])
        self.assertIn("AccessValidator", found["wrong", "plugins"])
        self.assertIn(("wrong", "setting rocketmq.broker.diskSpaceWarningLevelRatio"), found)
        self.assertNotIn(("wrong", "setting tls.enable"), found)
        _, out, _ = self.run_command("adopt", str(self.config))
        self.assertNotIn("hush", out)

    def test_missing_name_servers_are_named(self):
        self.config.write_text(self.config.read_text().replace(NAME_SERVERS, ""))
        self.assertIn("register nowhere", self.findings()["note", "setting namesrvAddr"])
        self.write("fetchNamesrvAddrByAddressServer=true")
        self.assertEqual(self.findings(), {})

    def test_account_file_is_below_the_installation(self):
        (self.home / "bin").mkdir()
        (self.home / "bin" / "runbroker.sh").write_text('JAVA_OPT="-Drocketmq.acl.plain.file=/conf/mine.yml"\n')
        _, found = self.look()
        self.assertIn("rocketmq.acl.plain.file=conf/mine.yml ", found["findings"][0]["remedy"])
        (self.home / "conf" / "acl").mkdir()
        (self.home / "conf" / "acl" / "more.yml").write_text(
            "accounts:\n- accessKey: another\n  secretKey: long-secret\n"
        )
        self.write("aclEnable=true", "rocketmq.acl.plain.file=/conf/mine.yml")
        self.assertIn("/conf/mine.yml, which does not exist", self.findings()["wrong", "accounts"])

    def test_account_files_are_read(self):
        self.write("aclEnable=true")
        self.assertIn("there is no account file", self.findings()["wrong", "accounts"])
        (self.home / "conf" / "plain_acl.yml").write_text(
            "accounts:\n- accessKey: somebody\n  secretKey: long-secret\n"
        )
        (self.home / "conf" / "acl").mkdir()
        (self.home / "conf" / "acl" / "more.yml").write_text(
            "accounts:\n- accessKey: another\n  secretKey: long-secret\n"
        )
        status, found = self.look()
        self.assertEqual((status, found["numbers"]["accounts"]), (0, 2))
        (start,) = [each["command"] for each in found["commands"] if " broker run " in each["command"]]
        self.assertTrue(start.startswith(f"ROCKETMQ_HOME={self.home} "))
        (self.home / "conf" / "acl" / "more.yml").write_text("accounts: [")
        self.assertIn("more.yml", self.findings()["wrong", "accounts"])

    def test_text_has_table_verdict_and_commands(self):
        status, out, _ = self.run_command("adopt", str(self.config))
        self.assertEqual(status, 0)
        for line in (
            "VecOrders\t4\t1302",
            f"{self.store}: ready",
            f"rocketd broker run --config {self.config}",
            f"rocketd give-back {self.config}",
        ):
            self.assertIn(f"{line}\n", out)


class GiveBackTests(MigrationTestCase):
    def test_own_settings_are_those_that_apaches_broker_does_not_know(self):
        text = (GOLDEN / "config" / "broker-4.9.7.properties").read_text()
        apaches = {entry.key for entry in properties_file.parse(text)}
        declared = BrokerSettings.by_name()
        unknown = {name for name, setting in declared.items() if name not in apaches and not setting.system_property}
        options = {"aclStrict", "aclCredentialsFile"}
        self.assertEqual(unknown - set(OWN_SETTINGS), UNSET)
        self.assertEqual(set(OWN_SETTINGS) - unknown, options)
        values = {entry.key: entry.value for entry in properties_file.parse(text)}
        self.assertEqual({name: values[name] for name in OTHER_DEFAULTS}, dict(OTHER_DEFAULTS))

    def test_store_is_ready_and_commands_start_apaches_broker(self):
        status, found = self.look("give-back")
        self.assertEqual((status, found["findings"]), (0, []))
        self.assertEqual(found["commands"][0]["command"], f"sh {self.home}/bin/mqbroker -c {self.config}")

    def test_settings_without_effect_in_apaches_broker_are_named(self):
        self.write("metricsPort=9911", "aclStrict=true", "tls.server.mode=enforcing", "transientStorePoolEnable=true")
        status, found = self.look("give-back", "-o", "listenPort=10999")
        levels = {each["subject"]: each["level"] for each in found["findings"]}
        self.assertEqual(
            levels,
            {
                "setting metricsPort": "note",
                "setting aclStrict": "note",
                "setting tls.server.mode": "note",
                "setting transientStorePoolEnable": "note",
                "setting listenPort": "wrong",
            },
        )
        self.assertEqual(status, 1)
        _, found = self.look("give-back")
        self.assertTrue(found["commands"][0]["command"].startswith("JAVA_OPT=-Dtls.server.mode=enforcing sh "))

    def test_option_of_java_with_a_blank_is_wrong(self):
        self.write("tls.server.keyPath=/keys/of broker")
        self.assertIn("blank", self.findings("give-back")["wrong", "setting tls.server.keyPath"])

    def test_dledger_would_begin_with_an_empty_log(self):
        self.write("enableDLegerCommitLog=true")
        self.assertIn("empty DLedger log", self.findings("give-back")["wrong", "setting enableDLegerCommitLog"])

    def test_store_directory_alone_is_not_enough(self):
        self.assertEqual(
            set(self.findings("give-back", place=self.store)) & {("wrong", "settings")}, {("wrong", "settings")}
        )

    def test_absolute_account_file_is_wrong(self):
        accounts = self.directory / "accounts.yml"
        accounts.write_text("accounts:\n- accessKey: somebody\n  secretKey: long-secret\n")
        self.write("aclEnable=true", f"rocketmq.acl.plain.file={accounts}")
        self.assertIn(f"cp {accounts}", self.look("give-back")[1]["findings"][-1]["remedy"])

    def test_journal_of_a_table_is_wrong(self):
        path = self.store / "config" / "topics.json"
        journal = TableJournal(RealFileSystem(), str(path))
        journal.begin(path.read_bytes())
        journal.append(b'{"topicConfigTable":{"New":{"topicName":"New"}}}')
        self.assertIn(f"{path}.journal", self.findings("give-back")["wrong", "tables"])
        path.write_bytes(path.read_bytes() + b"\n")
        self.assertEqual(self.findings("give-back"), {})

    def test_changes_by_request_are_wrong(self):
        (self.store / "config" / "changedByRequest.properties").write_text("fileReservedTime=5\n")
        self.assertIn("fileReservedTime=5", self.findings("give-back")["wrong", "settings"])
        self.write("fileReservedTime=5")
        self.assertEqual(self.findings("give-back"), {})

    def test_slave_timeout_is_named_for_sync_masters(self):
        self.write("brokerRole=SYNC_MASTER")
        for name in ("adopt", "give-back"):
            self.assertIn("3000", self.findings(name)["note", "setting slaveTimeout"])


class TimerTests(MigrationTestCase):
    def test_waiting_timer_messages_are_counted(self):
        root = self.directory / "timers"
        store = MessageStore(small_config(str(root)), STORE_HOST, clock=lambda: 1_700_000_000.0)
        store.start()
        waiting = b"TIMER_OUT_MS\x011900000000000\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02UNIQ_KEY\x01"
        keys = (b"a", b"b", b"c", b"d")
        store.put_messages([make_message(topic=TIMER_TOPIC, properties=waiting + key) for key in keys])
        store.put_messages([note_done([1], BORN_HOST, 1_700_000_000_000)])
        cancel = b"TIMER_OUT_MS\x011900000000000\x02REAL_TOPIC\x01T\x02TIMER_DEL_UNIQKEY\x01c"
        store.put_messages([make_message(topic=TIMER_TOPIC, properties=cancel)])
        store.stop()
        found = self.findings("give-back", place=root)
        self.assertIn("2 messages wait", found["wrong", "timer messages"])
        self.assertIn("rocketd-files", found["note", "store"])
