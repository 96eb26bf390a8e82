"""Files of accounts: reading, watching, and writing changes back."""

import errno
import os
import stat
from pathlib import Path

import yaml
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.acl import disk, yaml_text
from rocketd.acl.accounts import AccountConfig
from rocketd.acl.errors import AclError, AclFileError
from rocketd.acl.manager import PlainPermissionManager
from rocketd.acl.permissions import Permission
from rocketd.acl.plain_file import Version, parse
from rocketd.acl.signature import Secret
from tests.support.places import ROOT

SAMPLE = ROOT / "etc" / "plain_acl.yml"
NOW = 1_795_000_000_000
USER = "accounts:\n- accessKey: userKey1\n  secretKey: userSecret1\n"
SECRET = "s3cretText"


def signs(account, secret):
    """Whether this is the account's secret."""
    return account.secret.sign(b"x") == Secret(secret.encode()).sign(b"x")


class ParseTests(SynchronousTestCase):
    def test_sample_file_is_parsed(self):
        file = parse(SAMPLE.read_bytes(), "plain_acl.yml")
        self.assertEqual(file.white_addresses, ["10.10.103.*", "192.168.0.*"])
        plain, admin = file.accounts
        self.assertEqual((plain.access_key, plain.admin, admin.admin), ("RocketMQ", False, True))
        self.assertEqual((plain.default_topic, plain.default_group), (Permission.DENY, Permission.SUB))
        self.assertEqual(plain.resources["topicB"], Permission.PUB | Permission.SUB)
        self.assertEqual(plain.resources["%RETRY%groupA"], Permission.DENY)
        self.assertIsNone(file.version)

    def test_values_stay_texts(self):
        file = parse(
            b"accounts:\n- {accessKey: 12345678, secretKey: 0012345678, admin: TRUE, whiteRemoteAddress: ''}\n"
            b"- {accessKey: 2026-11-21, secretKey: 1.5000000, admin: yes, whiteRemoteAddress: ~}\n"
            b"- {accessKey: trueKey7, secretKey: 1e10000, admin: nothing}\n",
            "f",
        )
        self.assertEqual(
            [(c.access_key, c.secret_key, c.admin, c.white_remote_address) for c in file.configs],
            [
                ("12345678", "0012345678", True, ""),
                ("2026-11-21", "1.5000000", True, None),
                ("trueKey7", "1e10000", False, None),
            ],
        )

    def test_anchors_and_merges(self):
        file = parse(
            b"base: &base {defaultTopicPerm: PUB}\n"
            b"accounts:\n- {<<: *base, accessKey: userKey1, secretKey: userSecret1}\n",
            "f",
        )
        self.assertEqual(file.accounts[0].default_topic, Permission.PUB)

    def test_data_version_is_parsed(self):
        file = parse(b"dataVersion:\n- counter: 4\n  timestamp: 1795000000000\n", "f")
        self.assertEqual(file.version, Version(4, 1_795_000_000_000))

    def test_files_without_content_are_empty(self):
        for data in (b"", b"# nothing\n", b"---\n", b"~"):
            self.assertTrue(parse(data, "f").is_empty)

    def test_faults_name_file_and_line(self):
        for text, fault in (
            (f"accounts:\n- accessKey: userKey1\n  secretKey: {SECRET}\n bad", "plain.yml: line 4"),
            (
                USER + f"- accessKey: short\n  secretKey: {SECRET}\n",
                "plain.yml: line 4, accounts number 2: accessKey and",
            ),
            (USER + "  topicPerms: [T]\n", "line 2, accounts number 1: Parse resource permission failed for topic:T"),
            (USER + "  whiteRemoteAddress: 1.2.3\n", "line 2, accounts number 1: Netaddress examine Exception"),
            (USER + "  topicPerms: T=PUB\n", "topicPerms must be a list of texts"),
            (USER + "  defaultTopicPerm: [PUB]\n", "accounts number 1: defaultTopicPerm must be a text"),
            ("globalWhiteRemoteAddresses:\n- 10.0.0.1\n- 10.0.0.x\n", "line 3, globalWhiteRemoteAddresses number 2"),
            ("globalWhiteRemoteAddresses: 10.0.0.1\n", "globalWhiteRemoteAddresses must be a list of texts"),
            ("accounts: none\n", "accounts must be a list"),
            ("accounts: [x]\n", "line 1, accounts number 1: an account must be a map"),
            ("- a\n", "globalWhiteRemoteAddresses and accounts were expected"),
            ("dataVersion: [{counter: x}]\n", "dataVersion must hold one counter and timestamp"),
            (f"accounts: *{SECRET}\n", "line 1, column 11: found undefined alias"),
        ):
            error = str(self.assertRaises(AclFileError, parse, text.encode(), "plain.yml"))
            self.assertIn(fault, error)
            self.assertIn("plain.yml: ", error)
            self.assertNotIn(SECRET, error)

    def test_invalid_utf8_is_refused(self):
        self.assertIn("byte 2 is not UTF-8", str(self.assertRaises(AclFileError, parse, b"a:\xff", "f")))

    def test_control_characters(self):
        self.assertIn("it is not a valid YAML text", str(self.assertRaises(AclFileError, parse, b"a: \x01", "f")))


class OddityTests(SynchronousTestCase):
    def test_unknown_keys_give_warnings_with_suggestions(self):
        for text, warnings in (
            (USER, []),
            ("account:\n- accessKey: userKey1\n", ["account is not a known key; did you mean accounts?"]),
            (USER + "zebra: 1\n", ["zebra is not a known key"]),
            (USER + "1: {}\n~: x\n", ["1 is not a known key", "None is not a known key"]),
            (
                USER + "  topicPerm: [T=PUB]\n",
                ["line 2, accounts number 1: topicPerm is not a known key; did you mean topicPerms?"],
            ),
            (
                USER + "  topicPerms: [T=PUB, A=FOO, B = pub]\n  groupPerms: [G=SUB|BUS]\n",
                [
                    "line 2, accounts number 1: topicPerms: A=FOO is not a permission and counts as DENY; "
                    "known are DENY, PUB, SUB, PUB|SUB, SUB|PUB",
                    "line 2, accounts number 1: topicPerms: B = pub is not a permission and counts as DENY; "
                    "did you mean PUB?",
                    "line 2, accounts number 1: groupPerms: G=SUB|BUS is not a permission and counts as DENY; "
                    "did you mean SUB|PUB?",
                ],
            ),
            (
                USER + "  defaultTopicPerm: ''\n  defaultGroupPerm: ANY\n",
                [
                    "line 2, accounts number 1: defaultGroupPerm: ANY is not a permission and counts as DENY; "
                    "known are DENY, PUB, SUB, PUB|SUB, SUB|PUB",
                ],
            ),
        ):
            self.assertEqual(parse(text.encode(), "f").warnings, warnings)

    def test_anchored_extra_key_gives_no_warning(self):
        for text in ("base: &base {admin: yes}\n", "# ž\nbase: &base\n  admin: yes\n"):
            file = parse(text.encode() + USER.encode() + b"  <<: *base\n", "f")
            self.assertEqual((file.warnings, file.configs[0].admin), ([], True))

    def test_warnings_contain_no_secret(self):
        file = parse(USER.replace("userSecret1", SECRET).encode() + b"  secret: x\n", "f")
        self.assertIn("did you mean secretKey?", file.warnings[0])
        self.assertNotIn(SECRET, repr(file))


class WriteTests(SynchronousTestCase):
    def test_dump_number_like_texts_quotes_them(self):
        text = yaml_text.dump({"a": ["0123", "1e5", "12345678", "1_000", "x", "10.10.1.*", "PUB|SUB", "true"]})
        self.assertEqual(
            text, "a:\n- '0123'\n- '1e5'\n- '12345678'\n- '1_000'\n- x\n- 10.10.1.*\n- PUB|SUB\n- 'true'\n"
        )

    def test_with_account_keeps_comments_and_apaches_layout(self):
        text = parse(b"# head\n\n" + USER.encode(), "f").with_account(
            AccountConfig("newKey77", "newSecret", "10.0.0.1", True, "PUB", "SUB", ["T=PUB"], ["G=SUB"]), NOW
        )
        self.assertEqual(
            text,
            "# head\n\n"
            "accounts:\n"
            "- accessKey: userKey1\n  secretKey: userSecret1\n"
            "- accessKey: newKey77\n  secretKey: newSecret\n  whiteRemoteAddress: 10.0.0.1\n  admin: true\n"
            "  defaultTopicPerm: PUB\n  defaultGroupPerm: SUB\n  topicPerms:\n  - T=PUB\n  groupPerms:\n  - G=SUB\n"
            f"dataVersion:\n- counter: 1\n  timestamp: {NOW}\n",
        )

    def test_with_account_keeps_fields_absent_from_change(self):
        file = parse(
            USER.encode()
            + b"  admin: yes\n  defaultTopicPerm: PUB\n  note: mine\n- {accessKey: lastKey, secretKey: lastKey}\n"
            b"globalWhiteRemoteAddresses: [1.2.3.4]\ndataVersion: [{counter: 7, timestamp: 1}]\n",
            "f",
        )
        document = yaml.safe_load(file.with_account(AccountConfig("userKey1", "otherSecret", topic_perms=[]), NOW))
        self.assertEqual(document["accounts"][0]["accessKey"], "lastKey")
        self.assertEqual(
            document["accounts"][1],
            {
                "accessKey": "userKey1",
                "secretKey": "otherSecret",
                "admin": False,
                "defaultTopicPerm": "PUB",
                "note": "mine",
                "topicPerms": [],
            },
        )
        self.assertEqual(document["globalWhiteRemoteAddresses"], ["1.2.3.4"])
        self.assertEqual(document["dataVersion"], [{"counter": 8, "timestamp": NOW}])
        self.assertEqual(len(file.document["accounts"]), 2)
        self.assertEqual(file.document["accounts"][0]["secretKey"], "userSecret1")

    def test_without_an_account(self):
        file = parse(USER.encode(), "f")
        self.assertIsNone(file.without_account("nobodyKey", NOW))
        self.assertEqual(yaml.safe_load(file.without_account("userKey1", NOW) or "")["accounts"], [])


class DiskTests(SynchronousTestCase):
    def setUp(self):
        self.directory = self.mktemp()
        os.makedirs(self.directory)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, *names):
        os.makedirs(os.path.dirname(self.path(*names)), exist_ok=True)
        Path(self.path(*names)).write_text("a: b\n")

    def test_list_files_returns_yml_and_yaml_files(self):
        for name in ("b.yml", "a.yaml", "tools.yml", "c.yml.tmp", "d.txt"):
            self.write(name)
        self.write("team", "e.yml")
        self.write("..data", "f.yml")
        self.assertEqual(
            disk.list_files(self.directory), [self.path("a.yaml"), self.path("b.yml"), self.path("team", "e.yml")]
        )

    def test_list_files_of_missing_directory_is_empty(self):
        self.assertEqual(disk.list_files(self.path("none")), [])

    def test_replace_creates_file_readable_by_owner_only(self):
        disk.replace(self.path("a.yml"), b"x")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("a.yml")).st_mode), 0o600)
        self.assertFalse(disk.others_can_read(self.path("a.yml")))

    def test_replace_keeps_file_mode(self):
        self.write("a.yml")
        os.chmod(self.path("a.yml"), 0o640)
        disk.replace(self.path("a.yml"), b"x")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("a.yml")).st_mode), 0o640)
        self.assertEqual(disk.read(self.path("a.yml")), b"x")
        self.assertEqual(os.listdir(self.directory), ["a.yml"])

    def test_replace_through_link_keeps_link(self):
        self.write("real", "a.yml")
        os.symlink(os.path.join("real", "a.yml"), self.path("a.yml"))
        disk.replace(self.path("a.yml"), b"x")
        self.assertTrue(os.path.islink(self.path("a.yml")))
        self.assertEqual(disk.read(self.path("real", "a.yml")), b"x")

    def test_replace_failure_leaves_no_temporary_file(self):
        os.mkdir(self.path("a.yml"))
        self.assertRaises(OSError, disk.replace, self.path("a.yml"), b"x")
        self.assertEqual(os.listdir(self.directory), ["a.yml"])

    def test_replace_of_mount_point_writes_in_place(self):
        self.write("a.yml")
        number = os.stat(self.path("a.yml")).st_ino

        def refuse(source, target):
            raise OSError(errno.EBUSY, "Device or resource busy")

        self.patch(os, "rename", refuse)
        disk.replace(self.path("a.yml"), b"x")
        self.assertEqual(disk.read(self.path("a.yml")), b"x")
        self.assertEqual(os.stat(self.path("a.yml")).st_ino, number)
        self.assertEqual(os.listdir(self.directory), ["a.yml"])

    def test_others_can_read_goes_by_file_mode(self):
        self.write("a.yml")
        os.chmod(self.path("a.yml"), 0o644)
        self.assertTrue(disk.others_can_read(self.path("a.yml")))
        self.assertFalse(disk.others_can_read(self.path("none")))


class ManagerTests(SynchronousTestCase):
    def setUp(self):
        self.home = self.mktemp()
        self.file = os.path.join(self.home, "conf", "plain_acl.yml")
        self.more = os.path.join(self.home, "conf", "acl")
        os.makedirs(self.more)
        self.now = NOW
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def write(self, text, name="plain_acl.yml"):
        path = os.path.join(self.home, "conf", name)
        Path(path).write_text(text)
        os.chmod(path, 0o600)

    def manager(self, text=USER):
        if text is not None:
            self.write(text)
        manager = PlainPermissionManager(self.file, self.more, lambda: self.now)
        manager.load()
        return manager

    def lines(self, level):
        lines = [formatEvent(event) for event in self.events if event["log_level"] == level]
        self.events.clear()
        return lines

    def document(self):
        return yaml.safe_load(Path(self.file).read_text())

    # ---------------------------------------------------------------- loading

    def test_load_reads_default_file_and_directory(self):
        self.write(USER.replace("userKey1", "otherKey"), "acl/other.yml")
        manager = self.manager()
        self.assertEqual(set(manager.rules.accounts), {"userKey1", "otherKey"})
        self.assertEqual(self.lines(LogLevel.warn), [])

    def test_broken_file_is_refused_at_start(self):
        self.assertRaises(AclFileError, self.manager, "accounts: x")

    def test_unreadable_file_is_refused_at_start(self):
        os.makedirs(self.file)
        self.assertIn("directory", str(self.assertRaises(AclFileError, self.manager, None)))

    def test_missing_file_gives_no_accounts(self):
        manager = self.manager(None)
        self.assertEqual(manager.rules.accounts, {})
        self.assertIn("does not exist", self.lines(LogLevel.info)[0])
        self.assertEqual(manager.versions(), {})
        self.assertEqual(manager.version(), Version(0, NOW))

    def test_warning_if_no_client_can_sign_in(self):
        for text, served in (
            (None, "no client is served"),
            ("globalWhiteRemoteAddresses: [1.2.3.4]\n", "only clients at white addresses are served"),
        ):
            self.manager(text)
            (line,) = self.lines(LogLevel.warn)
            self.assertTrue(line.startswith("access control: 0 accounts in "), line)
            self.assertIn("plain_acl.yml", line)
            self.assertTrue(line.endswith(f": no client can sign in; {served}"), line)
        manager = self.manager()
        self.assertEqual(self.lines(LogLevel.warn), [])
        manager.delete_account("userKey1")
        self.assertIn("no client can sign in", self.lines(LogLevel.warn)[0])

    def test_unknown_keys_are_logged_at_each_read_of_changed_file(self):
        manager = self.manager("account: []\n" + USER)
        told = f"access control: {self.file}: account is not a known key; did you mean accounts?"
        self.assertEqual(self.lines(LogLevel.warn), [told])
        manager.reload()
        self.assertEqual(self.lines(LogLevel.warn), [])
        self.write("account: {}\n" + USER)
        manager.reload()
        self.assertEqual(self.lines(LogLevel.warn), [told])

    def test_default_file_inside_directory_is_read_once(self):
        self.write(USER, "acl/plain_acl.yml")
        manager = PlainPermissionManager(os.path.join(self.more, "plain_acl.yml"), self.more, lambda: NOW)
        manager.load()
        self.assertEqual(list(manager.versions()), [os.path.join(self.more, "plain_acl.yml")])
        self.assertEqual(self.lines(LogLevel.warn), [])

    def test_access_key_in_two_files_first_file_wins(self):
        self.write(USER.replace("userSecret1", "otherSecret"), "acl/other.yml")
        manager = self.manager()
        self.assertTrue(signs(manager.rules.accounts["userKey1"], "otherSecret"))
        self.assertEqual([config.secret_key for config in manager.account_configs()], ["otherSecret"])
        (line,) = self.lines(LogLevel.warn)
        self.assertIn("userKey1", line)
        self.assertIn("plain_acl.yml is ignored", line)

    def test_world_readable_file_gives_warning(self):
        self.write(USER)
        os.chmod(self.file, 0o644)
        self.manager(None)
        self.assertIn("can be read by every user", self.lines(LogLevel.warn)[0])

    # ---------------------------------------------------------------- watching

    def test_reload_applies_changed_file(self):
        manager = self.manager()
        before = manager.rules
        manager.reload()
        self.assertIs(manager.rules, before)
        self.write(USER.replace("userKey1", "otherKey") + "globalWhiteRemoteAddresses: [10.0.0.1]\n")
        manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"otherKey"})
        self.assertTrue(manager.rules.is_white("10.0.0.1"))
        self.assertEqual(set(before.accounts), {"userKey1"})

    def test_reload_sees_new_and_removed_files(self):
        manager = self.manager()
        self.write(USER.replace("userKey1", "otherKey"), "acl/other.yml")
        manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"userKey1", "otherKey"})
        os.remove(os.path.join(self.more, "other.yml"))
        manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"userKey1"})
        self.assertIn("other.yml was removed", self.lines(LogLevel.warn)[0])

    def test_reload_of_broken_file_keeps_previous_accounts(self):
        manager = self.manager()
        self.write("accounts: [{accessKey: userKey1")
        for _ in range(3):
            manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"userKey1"})
        (line,) = self.lines(LogLevel.error)
        self.assertIn("plain_acl.yml: line ", line)
        self.assertIn("its previous content stays in force", line)
        self.write(USER.replace("userKey1", "otherKey"))
        manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"otherKey"})

    def test_broken_file_leaves_other_files_in_force(self):
        manager = self.manager()
        self.write("accounts: x", "acl/other.yml")
        manager.reload()
        self.assertIn("the file is ignored", self.lines(LogLevel.error)[0])
        self.write(USER.replace("userSecret1", "otherSecret"))
        manager.reload()
        self.assertTrue(signs(manager.rules.accounts["userKey1"], "otherSecret"))

    def test_reload_of_emptied_file_keeps_previous_accounts(self):
        manager = self.manager()
        self.write("")
        manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"userKey1"})
        self.assertIn("it is empty", self.lines(LogLevel.error)[0])

    def test_reload_of_unreadable_file_keeps_previous_accounts(self):
        manager = self.manager()
        os.remove(self.file)
        os.makedirs(self.file)
        for _ in range(2):
            manager.reload()
        self.assertEqual(set(manager.rules.accounts), {"userKey1"})
        self.assertEqual(len(self.lines(LogLevel.error)), 1)
        os.rmdir(self.file)
        self.write(USER.replace("userSecret1", "otherSecret"))
        manager.reload()
        self.assertTrue(signs(manager.rules.accounts["userKey1"], "otherSecret"))

    def test_reload_of_broken_file_logs_no_secret(self):
        manager = self.manager()
        self.write(USER.replace("userSecret1", "otherSecret") + "x")
        manager.reload()
        self.assertFalse([event for event in self.events if "Secret" in formatEvent(event)])

    # ---------------------------------------------------------------- changing

    def test_set_account_adds_account(self):
        manager = self.manager()
        manager.set_account(AccountConfig("newKey77", "newSecret", topic_perms=["T=PUB"]))
        self.assertEqual(manager.rules.accounts["newKey77"].resources, {"T": Permission.PUB})
        self.assertEqual([a["accessKey"] for a in self.document()["accounts"]], ["userKey1", "newKey77"])
        self.assertEqual(manager.version(), Version(1, NOW))
        before = manager.rules
        manager.reload()
        self.assertIs(manager.rules, before)

    def test_set_account_changes_account(self):
        manager = self.manager(USER + "  defaultTopicPerm: PUB\n")
        self.now += 5
        manager.set_account(AccountConfig("userKey1", "otherSecret"))
        account = manager.rules.accounts["userKey1"]
        self.assertTrue(signs(account, "otherSecret"))
        self.assertEqual(account.default_topic, Permission.PUB)
        self.assertEqual(manager.version(), Version(1, NOW + 5))

    def test_set_account_writes_file_of_account(self):
        self.write(USER.replace("userKey1", "otherKey"), "acl/other.yml")
        manager = self.manager()
        manager.set_account(AccountConfig("otherKey", "otherSecret"))
        self.assertIn("otherSecret", Path(self.more, "other.yml").read_text())
        self.assertEqual(Path(self.file).read_text(), USER)
        self.assertEqual(manager.version(), Version(0, NOW))
        self.assertEqual(manager.versions()[os.path.join(self.more, "other.yml")], Version(1, NOW))
        self.assertTrue(manager.delete_account("otherKey"))
        self.assertEqual(set(manager.rules.accounts), {"userKey1"})

    def test_set_account_creates_missing_file(self):
        manager = self.manager(None)
        manager.set_account(AccountConfig("newKey77", "newSecret"))
        self.assertEqual(stat.S_IMODE(os.stat(self.file).st_mode), 0o600)
        self.assertEqual(set(manager.rules.accounts), {"newKey77"})

    def test_set_account_keeps_unread_changes_of_file(self):
        manager = self.manager()
        self.write(USER + "- {accessKey: byHand7, secretKey: byHand7}\n")
        manager.set_account(AccountConfig("newKey77", "newSecret"))
        self.assertEqual(set(manager.rules.accounts), {"userKey1", "byHand7", "newKey77"})

    def test_changes_to_broken_file_are_refused(self):
        manager = self.manager()
        self.write("accounts: x")
        self.assertRaises(AclFileError, manager.set_account, AccountConfig("newKey77", "newSecret"))
        self.assertRaises(AclFileError, manager.delete_account, "userKey1")
        self.assertRaises(AclFileError, manager.set_white_addresses, ["1.2.3.4"])
        self.assertEqual(Path(self.file).read_text(), "accounts: x")
        self.assertEqual(set(manager.rules.accounts), {"userKey1"})

    def test_set_account_refuses_invalid_accounts(self):
        manager = self.manager()
        for config, text in (
            (
                AccountConfig("short", "newSecret"),
                "The accessKey=short and secretKey=newSecret cannot be null and length",
            ),
            (AccountConfig("newKey77", None), "The accessKey=newKey77 and secretKey=null cannot be null"),
            (AccountConfig("newKey77", "newSecret", topic_perms=["T"]), "Parse Resource format error for T."),
            (AccountConfig("newKey77", "newSecret", group_perms=["G=X"]), "Parse resource permission error for G=X."),
            (AccountConfig("newKey77", "newSecret", "1.2.3"), "Netaddress examine Exception netaddress is 1.2.3"),
        ):
            self.assertIn(text, str(self.assertRaises(AclError, manager.set_account, config)))
        self.assertEqual(Path(self.file).read_text(), USER)

    def test_delete_account_removes_account(self):
        manager = self.manager()
        self.assertFalse(manager.delete_account("nobodyKey"))
        self.assertTrue(manager.delete_account("userKey1"))
        self.assertEqual(manager.rules.accounts, {})
        self.assertEqual(self.document(), {"accounts": [], "dataVersion": [{"counter": 1, "timestamp": NOW}]})
        self.assertFalse(manager.delete_account("userKey1"))

    def test_set_white_addresses_applies_and_stores_them(self):
        manager = self.manager()
        self.assertTrue(manager.set_white_addresses(["10.10.1.*", "10.0.0.1"]))
        self.assertTrue(manager.rules.is_white("10.10.1.9"))
        self.assertEqual(manager.white_addresses(), ["10.10.1.*", "10.0.0.1"])
        self.assertEqual(self.document()["globalWhiteRemoteAddresses"], ["10.10.1.*", "10.0.0.1"])
        self.assertRaises(AclError, manager.set_white_addresses, ["10.10.1.x"])

    def test_set_white_addresses_accepts_account_files_only(self):
        self.write(USER.replace("userKey1", "otherKey"), "acl/other.yml")
        self.write("a: b\n", "mine.yml")
        manager = self.manager()
        other = os.path.join(self.more, "other.yml")
        self.assertTrue(manager.set_white_addresses(["10.0.0.1"], other))
        self.assertTrue(manager.set_white_addresses(["10.0.0.2"], os.path.join(self.more, "..", "plain_acl.yml")))
        self.assertEqual(manager.white_addresses(), ["10.0.0.1", "10.0.0.2"])
        for path in (os.path.join(self.home, "conf", "mine.yml"), os.path.join(self.more, "none.yml"), "/etc/passwd"):
            self.assertFalse(manager.set_white_addresses(["10.0.0.1"], path))
        self.assertEqual(Path(self.home, "conf", "mine.yml").read_text(), "a: b\n")

    def test_set_account_write_failure_has_no_effect(self):
        manager = self.manager()
        os.rename(os.path.join(self.home, "conf"), os.path.join(self.home, "gone"))
        self.assertRaises(OSError, manager.set_account, AccountConfig("newKey77", "newSecret"))
        self.assertNotIn("newKey77", manager.rules.accounts)
