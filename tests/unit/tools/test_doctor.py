"""The doctor: findings from given facts, and its command."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from rocketd import core
from rocketd.remoting.bodies.admin import ConsumeStats, OffsetWrapper
from rocketd.remoting.bodies.groups import GroupProblem, GroupProblemKind, GroupProblems
from rocketd.remoting.bodies.tables import KVTable, MessageQueue, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketd.remoting.tls.certificates import self_signed
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.doctor import command, local, machine
from rocketd.tools.doctor.bundle import masked, write_bundle
from rocketd.tools.doctor.cluster import (
    ExaminedBroker,
    ExaminedGroup,
    _members,
    judge_groups,
    judge_members,
    judge_name_servers,
    judge_problems,
    look_at_cluster,
)
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.doctor.machine import LockOwner, MachineFacts
from rocketd.tools.doctor.security import judge_security
from tests.support.client_cluster import ClientTestCase, Cluster
from tests.unit.tools.test_cli import run_main

SOUND = MachineFacts(
    open_files=655_350,
    mappings=65_530,
    python=(3, 13),
    core=core.COMPILED_KIND,
    now=1_700_000_000.0,
    clock_is_synchronized=True,
)
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def levels(findings):
    return [(finding.level, finding.subject) for finding in findings]


class MachineTests(SynchronousTestCase):
    def judge(self, **facts):
        return list(local.judge_machine(dataclasses.replace(SOUND, **facts)))

    def test_sound_machine_has_no_finding(self):
        self.assertEqual(self.judge(), [])
        self.assertEqual(self.judge(mappings=None, clock_is_synchronized=None), [])

    def test_each_fault_is_found(self):
        for facts, expected in (
            ({"open_files": 1024}, (WRONG, "limits")),
            ({"mappings": 1000}, (WRONG, "limits")),
            ({"python": (3, 10)}, (NOTE, "python")),
            ({"python": (3, 99)}, (NOTE, "python")),
            ({"core": core.STALE_KIND}, (WRONG, "python")),
            ({"core": core.PURE_KIND}, (NOTE, "python")),
            ({"clock_is_synchronized": False}, (WRONG, "clock")),
        ):
            (finding,) = self.judge(**facts)
            self.assertEqual((finding.level, finding.subject), expected)
            self.assertTrue(finding.remedy)

    def test_facts_of_this_machine_are_read(self):
        facts = machine.read_machine()
        self.assertGreater(facts.open_files, 0)
        self.assertEqual((facts.python, facts.core), (sys.version_info[:2], core.kind()))
        self.assertEqual(machine.file_system_of("/proc"), "proc")
        self.assertGreater(machine.open_files_of(os.getpid()), 0)
        self.assertIsNone(machine.open_files_of(-1))


class StoreTests(SynchronousTestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.root = os.path.join(self.directory, "store")
        self.patch(local, "file_system_of", lambda path: "ext4")

    def judge(self, facts=SOUND, **settings):
        overrides = {"storePathRootDir": self.root, "diskMaxUsedSpaceRatio": "99", **settings}
        overrides.setdefault("rocketmq.broker.diskSpaceWarningLevelRatio", "0.999")
        overrides.setdefault("mappedFileSizeCommitLog", "1048576")
        loaded, faults = local.load_settings(None, overrides.items())
        self.assertEqual([finding for finding in faults if "diskSpace" not in finding.text], [])
        return list(local.judge_store(loaded, facts))

    def create(self, *names):
        for name in ("commitlog", "config"):
            os.makedirs(os.path.join(self.root, name), exist_ok=True)
        for name in names:
            path = os.path.join(self.root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb"):
                pass
            os.utime(path, (SOUND.now, SOUND.now))

    def test_settings_without_effect_or_with_faults_are_found(self):
        for key, value in (("noSuchKey", "1"), ("useReentrantLockWhenPutMessage", "false")):
            (finding,) = local.load_settings(None, [(key, value)])[1]
            self.assertEqual(finding.level, WRONG)
            self.assertIn(key, finding.text)
        settings, (finding,) = local.load_settings(None, [("listenPort", "x")])
        self.assertIsNone(settings)
        self.assertIn("listenPort = x", finding.text)

    def test_sound_store_has_no_finding_and_missing_one_a_note(self):
        self.assertEqual(levels(self.judge()), [(NOTE, "store")])
        self.create("checkpoint", "lock")
        self.assertEqual(self.judge(), [])

    def test_full_disk_is_found_by_the_settings_of_the_broker(self):
        self.create()
        for percent, gigabytes, words in (
            (95, 1000, "messages are refused"),
            (50, 1000, "expired files are deleted"),
            (5, 1, "room for less than two files"),
        ):
            names = {"f_blocks": gigabytes * 100, "f_bavail": gigabytes * (100 - percent), "f_frsize": (1 << 30) // 100}
            figures = type("Figures", (), {**names, "f_bfree": names["f_bavail"]})
            self.patch(os, "statvfs", lambda path, figures=figures: figures)
            limits = {"diskMaxUsedSpaceRatio": "50", "mappedFileSizeCommitLog": str(1 << 30)}
            found = self.judge(**limits, **{"rocketmq.broker.diskSpaceWarningLevelRatio": "0.9"})
            self.assertEqual(levels(found), [(WRONG, "disk")])
            self.assertIn(words, found[0].text)

    def test_remote_and_passing_file_systems_are_found(self):
        self.create()
        for kind in ("nfs4", "tmpfs"):
            self.patch(local, "file_system_of", lambda path, kind=kind: kind)
            self.assertIn((WRONG, "disk"), levels(self.judge()))

    def test_file_from_the_future_shows_a_clock_set_back(self):
        self.create("checkpoint")
        back = dataclasses.replace(SOUND, now=SOUND.now - 3600)
        (finding,) = self.judge(back)
        self.assertEqual((finding.level, finding.subject), (WRONG, "clock"))
        self.assertIn("3600 s after now", finding.text)

    def test_store_that_was_not_closed_is_a_note(self):
        self.create("abort", "lock")
        (finding,) = self.judge()
        self.assertEqual(finding.level, NOTE)
        self.assertIn("was not closed", finding.text)

    def test_lock_of_another_program_is_found(self):
        self.create("lock", "abort")
        path = os.path.join(self.root, "lock")
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            self.assertEqual(holder.stdout.readline(), b"held\n")
            owner = machine.lock_owner(self.root)
            self.assertEqual(owner.pid, holder.pid)
            self.assertIn("fcntl.lockf", owner.command)
            holder.stdin.close()
        self.assertIsNone(machine.lock_owner(self.root))
        for owner, expected in (
            (LockOwner(7, "java org.apache.rocketmq.broker.BrokerStartup"), [(WRONG, "store")]),
            (LockOwner(0, ""), [(NOTE, "store")]),
            (LockOwner(os.getpid(), "rocketd broker run"), []),
        ):
            self.patch(local, "lock_owner", lambda root, owner=owner: owner)
            self.patch(local, "open_files_of", lambda pid: 655_350)
            self.assertEqual(levels(self.judge()), expected)
        self.patch(local, "open_files_of", lambda pid: 1024)
        self.assertEqual(levels(self.judge()), [(WRONG, "limits")])

    def test_more_queue_files_than_mappings_are_found(self):
        self.create(*(f"consumequeue/T/{queue}/00000000000000000000" for queue in range(6)))
        self.assertEqual(self.judge(dataclasses.replace(SOUND, mappings=12)), [])
        (finding,) = self.judge(dataclasses.replace(SOUND, mappings=10))
        self.assertIn("6 queue files, but only 5", finding.text)

    def test_unreadable_store_is_found(self):
        self.create("checkpoint")
        self.patch(os, "access", lambda path, mode: not path.endswith("checkpoint"))
        (finding,) = self.judge()
        self.assertEqual((finding.level, finding.subject), (WRONG, "store"))
        self.assertIn("may not read and write", finding.text)

    def test_lock_that_cannot_be_read_is_found(self):
        self.create("lock")
        access = os.access
        self.patch(os, "access", lambda path, mode: not path.endswith("lock") and access(path, mode))
        (finding,) = self.judge()
        self.assertIn(f"may not read and write {self.root}/lock", finding.text)
        self.patch(os, "access", access)
        os.remove(os.path.join(self.root, "lock"))
        os.mkdir(os.path.join(self.root, "lock"))
        (finding,) = self.judge()
        self.assertEqual((finding.level, finding.subject), (WRONG, "store"))
        self.assertIn("cannot be read: Is a directory", finding.text)
        self.assertIn("/lock", finding.remedy)


class ClusterTests(SynchronousTestCase):
    def member(self, broker_id=0, address="10.0.0.1:10911", **more):
        return ExaminedBroker("a", broker_id, address, **more)

    def judge(self, *members):
        return list(judge_members(members, {"10.0.0.9:9876": {}}))

    def test_sound_cluster_has_no_finding(self):
        table = {"brokerVersionDesc": "V4_9_7", "commitLogDiskRatio": "0.5", "haSlavesLagging": "false"}
        self.assertEqual(self.judge(self.member(table=table), self.member(1, "10.0.0.2:1", table=table)), [])

    def test_faults_of_members_are_found(self):
        began = str(1_700_000_000_000)
        runtime = "[ 1 days, 0 hours, 0 minutes, 10 seconds ]"
        now = 1_700_000_000 + 86_410
        for member, words in (
            (self.member(address="127.0.0.1:10911"), "leads each client to its own machine"),
            (self.member(error="refused"), "10.0.0.1:10911 does not answer: refused"),
            (self.member(table={"commitLogDiskRatio": "0.76"}), "expired files are deleted"),
            (self.member(table={"commitLogDiskRatio": "0.93"}), "messages are refused"),
            (self.member(table={"haSlavesLagging": "true"}), "too far behind"),
            (self.member(table={"bootTimestamp": began, "runtime": runtime}, asked_at=now - 60), "60 s ahead of"),
            (self.member(table={"bootTimestamp": began, "runtime": runtime}, asked_at=now + 60), "60 s behind"),
        ):
            (finding,) = self.judge(member)
            self.assertEqual((finding.level, finding.subject), (WRONG, "broker a"))
            self.assertIn(words, finding.text.replace("59 s", "60 s"))
        exact = self.member(table={"bootTimestamp": began, "runtime": runtime}, asked_at=now + 0.9)
        self.assertEqual(self.judge(exact), [])

    def test_loopback_is_right_if_the_name_server_is_local(self):
        member = self.member(address="127.0.0.1:10911")
        self.assertEqual(list(judge_members([member], {"127.0.0.1:9876": {}})), [])

    def test_slave_without_master_or_connection_is_found(self):
        found = self.judge(self.member(1, table={"haMasterConnected": "false"}))
        self.assertEqual(levels(found), [(WRONG, "broker a"), (WRONG, "slave 1 of a")])

    def test_versions_that_differ_are_a_note(self):
        found = self.judge(*(self.member(number, table={"brokerVersionDesc": f"V{number}"}) for number in (0, 1)))
        self.assertEqual(
            [(each.level, each.text) for each in found], [(NOTE, "their versions differ: 1 with V0, 1 with V1")]
        )

    def test_name_servers_that_differ_are_found(self):
        both, one = {"a": {0: "x", 1: "y"}}, {"a": {0: "x"}}
        self.assertEqual(list(judge_name_servers({"n": both, "m": both})), [])
        (finding,) = judge_name_servers({"n": both, "m": one})
        self.assertEqual((finding.subject, finding.text[:17]), ("name server m", "does not know a 1"))
        self.assertEqual(levels(judge_name_servers({"n": {}})), [(WRONG, "name servers")])

    def test_two_brokers_of_one_name_at_different_name_servers_are_found(self):
        first, second = {"a": {0: "x", 1: "z"}}, {"a": {0: "y", 1: "z"}}
        (finding,) = judge_name_servers({"n": first, "m": second, "o": second})
        self.assertEqual((finding.level, finding.subject), (WRONG, "broker a"))
        self.assertEqual(finding.text, "has different addresses: x at n, y at m")

    def test_groups_in_trouble_are_found(self):
        groups = [
            ExaminedGroup("fine", 1, 10),
            ExaminedGroup("slow", 2, 11),
            ExaminedGroup("gone", 0, 11),
            ExaminedGroup("old", 0, 1),
        ]
        found = list(judge_groups([*groups, ExaminedGroup("idle", 0, 0)], 10))
        expected = [(WRONG, "group slow"), (WRONG, "group gone"), (NOTE, "group old")]
        self.assertEqual(levels(found), expected)
        problem = GroupProblem(group="g", kind=GroupProblemKind.UNREAD_QUEUES, text="they differ")
        self.assertEqual(levels(judge_problems([problem, problem])), [(WRONG, "group g")])


class SecurityTests(SynchronousTestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def judge(self, now=SOUND.now, **settings):
        loaded, _ = local.load_settings(None, [(key.replace("_", "."), value) for key, value in settings.items()])
        return list(judge_security(loaded, dataclasses.replace(SOUND, now=now)))

    def file(self, name, content=b"", mode=0o600):
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def test_readable_files_of_secrets_are_found(self):
        for mode, expected in ((0o600, []), (0o644, [(WRONG, "security")])):
            key = self.file("key.pem", mode=mode)
            self.assertEqual(levels(self.judge(tls_server_keyPath=key)), expected)
            tools = self.file("tools.yml", mode=mode)
            self.assertEqual(levels(self.judge(aclCredentialsFile=tools)), expected)
        self.file("conf/acl/more.yml", mode=0o644)
        self.file("conf/plain_acl.yml", mode=0o644)
        strict = {"aclEnable": "true", "aclStrict": "true", "haAllowedAddresses": "10.0.0.1"}
        found = self.judge(rocketmqHome=self.directory, **strict)
        self.assertEqual([finding.remedy[-12:] for finding in found], ["lain_acl.yml", "acl/more.yml"])

    def test_certificate_near_its_end_is_found(self):
        identity = self_signed(datetime.fromtimestamp(SOUND.now, UTC))
        path = self.file("cert.pem", identity.certificate.to_cryptography().public_bytes(Encoding.PEM))
        ends = identity.certificate.to_cryptography().not_valid_after_utc.timestamp()
        for now, words in ((ends - 40 * 86_400, None), (ends - 10.5 * 86_400, "in 10 days"), (ends + 1, "expired on")):
            found = self.judge(now, tls_server_certPath=path)
            self.assertEqual(levels(found), [(WRONG, "security")] if words else [])
            self.assertTrue(not words or words in found[0].text)
        (finding,) = self.judge(tls_server_certPath=self.file("none.pem", b"x"))
        self.assertIn("does not contain a PEM certificate", finding.text)

    def test_open_access_is_a_note(self):
        self.assertEqual(levels(self.judge(adminWithoutAcl="any")), [(NOTE, "security")])


class ScriptedCluster(Cluster):
    """Two masters with full disks, and two groups of applications."""

    def answer_28(self, address, request, fields):
        return RemotingCommand.response(0, body=KVTable({"commitLogDiskRatio": "0.8"}).encode())

    def answer_201(self, address, request, fields):
        groups = {name: SubscriptionGroupConfig(name) for name in ("g", "h", "TOOLS_CONSUMER", "CID_RMQ_SYS_X")}
        return RemotingCommand.response(0, body=SubscriptionGroupWrapper(groups).encode())

    def answer_208(self, address, request, fields):
        behind = {MessageQueue("T", "a", 0): OffsetWrapper(6, 0)} if fields["consumerGroup"] == "g" else {}
        return RemotingCommand.response(0, body=ConsumeStats(behind).encode())

    def answer_203(self, address, request, fields):
        return RemotingCommand.response(206, "offline")

    def answer_30001(self, address, request, fields):
        if address == "b:10911":
            return RemotingCommand.response(3, "unknown")
        problems = [GroupProblem(group="h", kind=GroupProblemKind.UNREAD_QUEUES, text="they differ")]
        return RemotingCommand.response(0, body=GroupProblems(problems).encode())


class LookTests(ClientTestCase):
    cluster_type = ScriptedCluster

    def setUp(self):
        super().setUp()
        self.cluster.slaves = {"a": {1: "c:10911"}}
        self.cluster.down = {"c:10911"}

    def test_faults_of_brokers_and_groups_are_found(self):
        findings, members = self.result_of(look_at_cluster(self.client, 5))
        self.assertEqual(
            levels(findings),
            [
                (WRONG, "broker a"),
                (WRONG, "slave 1 of a"),
                (WRONG, "broker b"),
                (WRONG, "group g"),
                (WRONG, "group h"),
            ],
        )
        self.assertEqual([member.label for member in members], ["broker a", "slave 1 of a", "broker b"])
        self.assertIn("c:10911 does not answer", findings[1].text)
        self.assertEqual(findings[3].text, "no member is online, and 6 messages wait")
        asked = {fields["consumerGroup"] for _, fields in self.cluster.of(208)}
        self.assertEqual(asked, {"g", "h"})

    def test_unreadable_answers_are_faults_of_their_senders(self):
        self.cluster.answer_28 = lambda *_: RemotingCommand.response(0, body=b"{")
        self.cluster.slaves = {}
        findings, _ = self.result_of(look_at_cluster(self.client, 5))
        self.assertEqual(levels(findings), [(WRONG, "broker a"), (WRONG, "broker b")])

    def test_silent_name_server_is_found(self):
        self.cluster.down = {"ns:9876"}
        findings, members = self.result_of(look_at_cluster(self.client, 5))
        self.assertEqual((levels(findings), members), ([(WRONG, "name server ns:9876")], []))

    def test_each_address_of_a_name_is_asked(self):
        tables = [{"a": {0: "b:10911"}}, {"a": {0: "a:10911"}}, {"a": {0: "a:10911"}}]
        members = self.result_of(_members(self.client, tables))
        self.assertEqual([member.address for member in members], ["a:10911", "b:10911"])

    def test_master_without_answer_leaves_groups_unknown(self):
        self.cluster.down = {"b:10911"}
        findings, _ = self.result_of(look_at_cluster(self.client, 5))
        self.assertEqual(levels(findings)[-1], (NOTE, "groups"))


class CommandTests(SynchronousTestCase):
    def setUp(self):
        self.facts = SOUND
        self.patch(command, "read_machine", lambda: self.facts)

    def test_status_is_1_only_if_something_is_wrong(self):
        self.assertEqual(run_main("doctor", "--local"), (0, "no fault found\n", ""))
        self.facts = dataclasses.replace(SOUND, core=core.PURE_KIND)
        status, out, _ = run_main("doctor", "--local")
        self.assertEqual((status, out.splitlines()[1][:4]), (0, NOTE))
        self.facts = dataclasses.replace(SOUND, core=core.PURE_KIND, open_files=1)
        status, out, _ = run_main("doctor", "--local")
        self.assertEqual((status, [line[:5] for line in out.splitlines()[1:]]), (1, [WRONG, f"{NOTE}\t"]))

    def test_json_has_a_line_for_each_finding(self):
        self.facts = dataclasses.replace(SOUND, open_files=1)
        found = []
        self.patch(sys.modules["rocketd.tools.base.rows"], "show_bytes", found.append)
        self.assertEqual(run_main("doctor", "--local", "--json")[0], 1)
        (finding,) = map(json.loads, found)
        self.assertEqual(sorted(finding), ["finding", "level", "remedy", "subject"])

    def test_bundle_masks_secrets_and_is_not_overwritten(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        with open(os.path.join(directory, "broker.log"), "w") as file:
            file.write("before\nsecretKey: hush keyPassword=\"hush hush\" {'token': 'hush'}\n")
        path = os.path.join(directory, "bundle")
        settings = (
            "-o",
            f"logDir={directory}",
            "-o",
            "tls.server.keyPassword=hush",
            "-o",
            f"storePathRootDir={directory}",
        )
        run_main("doctor", "--local", "--bundle", path, *settings)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with tarfile.open(path) as archive:
            texts = {name.partition("/")[2]: archive.extractfile(name).read().decode() for name in archive.getnames()}
        self.assertEqual([name for name, text in texts.items() if "hush" in text], [])
        self.assertIn("before\nsecretKey: ******", texts["logs/broker.log"])
        self.assertIn("listenPort=10911", texts["settings.properties"])
        status, _, err = run_main("doctor", "--local", "--bundle", path)
        self.assertEqual((status, err), (1, f"rocketd doctor: --bundle {path}: File exists\n"))

    def test_masked_replaces_the_rest_of_the_line_after_a_secret(self):
        for text in (
            'password: "a\\"b hush", x=hush',
            "password=a,hush;hush hush",
            "x.pwd=hush hush",
            "-DkeyStorePass=hush",
            "secretKey=hush\\\nhush",
            "Authorization: Bearer hush",
            "sent bearer hush",
            "rocketmq://hush:hush@host:9876",
            "user:hu@hush@host",
            "--secret-key hush --namesrv x",
            "['--secret-key', 'hush']",
            "('password', 'hush hush')",
        ):
            clean = masked(f"before {text}\nafter")
            self.assertNotIn("hush", clean)
            self.assertEqual((clean[:7], clean[-6:]), ("before ", "\nafter"))

    def test_masked_keeps_other_text(self):
        for text in (
            "tokens are 7",
            "password=\nx=1",
            "passed: 3",
            "12:00:01 http://host:80/x from 10.0.0.1@7",
            "aclCredentialsFile=/etc/tools.yml",
        ):
            self.assertEqual(masked(text), text)

    def test_masked_of_repeated_words_takes_linear_time(self):
        for text in ("secret" * 8000, "--secret" * 6000, "-" * 48_000, "a:" * 24_000):
            began = time.process_time()
            masked(text)
            # About 50 ms. With unbounded repetitions it is more than 20 s.
            self.assertLess(time.process_time() - began, 5)

    def test_bundle_masks_objects_and_cut_lines(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        with open(os.path.join(directory, "broker.log"), "w") as file:
            file.write(f"secretKey={'hush' * 65536}\nafter\n")
        path = os.path.join(directory, "bundle")
        settings, _ = local.load_settings(None, [("logDir", directory)])
        findings = [DoctorFinding(WRONG, "store", "java -Dpassword=hush", "stop it")]
        members = [ExaminedBroker("a", 0, "x:1", {"secretKey": "hush", "runtime": "1"})]
        write_bundle(path, SOUND, settings, findings, members)
        with tarfile.open(path) as archive:
            texts = {name.partition("/")[2]: archive.extractfile(name).read().decode() for name in archive.getnames()}
        self.assertEqual(texts["logs/broker.log"], "after\n")
        self.assertEqual(json.loads(texts["findings.json"])["remedy"], "stop it")
        self.assertEqual(json.loads(texts["brokers.json"])[0]["table"], {"secretKey": "******", "runtime": "1"})
        self.assertEqual([name for name, text in texts.items() if "hush" in text], [])
