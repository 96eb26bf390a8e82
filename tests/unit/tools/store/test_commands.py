"""``rocketd store``: its output, its exit statuses, and that it refuses an open store."""

import base64
import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import LOCK_CONTENT, lock_path
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, make_message, small_config
from rocketd.tools.cli import main
from rocketd.tools.store import commands as store
from rocketd.tools.store.text import ProgressBar

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(rocketd.__file__)))
HOLDER = """
import sys
from rocketd.store.base.filesystem import RealFileSystem
RealFileSystem().lock(sys.argv[1], b"lock")
print("locked", flush=True)
sys.stdin.read()
"""


class Terminal(StringIO):
    """A file that says that it is a terminal."""

    def isatty(self):
        return True


class StoreToolTestCase(SynchronousTestCase):
    def make(self, *messages):
        root = os.path.abspath(self.mktemp())
        store = MessageStore(small_config(root), STORE_HOST, clock=lambda: 1_700_000_000.0)
        store.start()
        store.put_messages(messages or [make_message(b"body %d" % n, queue_id=n % 2, key=f"k{n}") for n in range(6)])
        store.stop()
        return root

    def run_tool(self, *arguments, err=None):
        out, err = StringIO(), err or StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main(("store", *arguments))
            except SystemExit as left:
                status = left.code
        return status, out.getvalue(), err.getvalue()

    def log_path(self, root):
        return os.path.join(root, "commitlog", "0" * 20)

    def flip(self, path, position):
        with open(path, "r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes((byte ^ 1,)))

    def contents(self, root):
        return {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


class UsageTests(StoreToolTestCase):
    def test_wrong_command_lines(self):
        root = self.make()
        for arguments in (
            (),
            ("polish", root),
            ("verify",),
            ("verify", root, root),
            ("verify", os.path.join(root, "config")),
            ("verify", os.path.join(root, "nowhere")),
            ("verify", root, "--config", os.path.join(root, "nowhere")),
            ("dump", root, "--queue", "T"),
            ("dump", root, "--queue", "T:x"),
            ("dump", root, "--from", "x"),
            ("dump", root, "--count", "0"),
            ("repair", root, "--write", "--dry-run"),
        ):
            status, out, err = self.run_tool(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (arguments, err))

    def test_mistyped_directory_stays_unchanged(self):
        directory = os.path.abspath(self.mktemp())
        os.mkdir(directory)
        self.assertEqual(self.run_tool("repair", "--write", directory)[0], 2)
        self.assertEqual(os.listdir(directory), [])

    def test_every_command_helps(self):
        for command in ("inspect", "verify", "dump", "repair"):
            status, out, _ = self.run_tool(command, "--help")
            self.assertEqual(status, 0)
            self.assertIn("DIR", out)


class InterruptTests(StoreToolTestCase):
    def test_dump_into_closed_pipe_ends_silently_with_status_1(self):
        root = self.make(*[make_message(b"x" * 100, key=f"k{n}") for n in range(100)])
        code = "from rocketd.tools.cli import main; raise SystemExit(main())"
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as stdout:
            done = subprocess.run(
                [sys.executable, "-c", code, "store", "dump", "-b", root],
                stdout=stdout,
                stderr=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": ROOT},
            )
        self.assertEqual((done.returncode, done.stderr), (1, b""))

    def test_interrupt_gives_the_lock_back_and_reaches_the_console_script(self):
        root = self.make()
        self.patch(store, "summarize", mock.Mock(side_effect=KeyboardInterrupt))
        self.assertRaises(KeyboardInterrupt, self.run_tool, "inspect", root)
        fs = RealFileSystem()
        fs.unlock(fs.lock(lock_path(root), LOCK_CONTENT))


class LockTests(StoreToolTestCase):
    COMMANDS = (("inspect",), ("verify",), ("dump",), ("repair",), ("repair", "--write"))

    def check_refused(self, root):
        for command in self.COMMANDS:
            status, out, err = self.run_tool(*command, root)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), command)
            self.assertIn("in use by another process", err)

    def test_store_open_in_this_process_is_refused(self):
        root = self.make()
        store = MessageStore(small_config(root), STORE_HOST)
        store.start()
        self.addCleanup(store.stop)
        self.check_refused(root)

    def test_store_open_in_another_process_is_refused(self):
        root = self.make()
        environment = os.environ | {"PYTHONPATH": ROOT}
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, lock_path(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.addCleanup(holder.communicate)
        self.assertEqual(holder.stdout.readline(), b"locked\n")
        self.check_refused(root)

    def test_lock_is_held_during_the_command_and_released(self):
        root = self.make()
        fs = RealFileSystem()
        held = []

        class Watching(Terminal):
            def write(self, text):
                try:
                    fs.unlock(fs.lock(lock_path(root), LOCK_CONTENT))
                except Exception as error:
                    held.append(error)

        self.run_tool("verify", root, err=Watching())
        self.assertTrue(held)
        fs.unlock(fs.lock(lock_path(root), LOCK_CONTENT))

    def test_read_only_store_is_readable(self):
        root = self.make()

        def refuse(*arguments):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), lock_path(root))

        self.patch(RealFileSystem, "lock", refuse)
        for command in ("inspect", "verify", "dump"):
            status, _, err = self.run_tool(command, root)
            self.assertEqual(status, 0)
            self.assertIn("not locked", err)
        self.assertEqual(self.run_tool("repair", "--write", root)[0], 1)


class InspectTests(StoreToolTestCase):
    def test_json(self):
        root = self.make()
        before = self.contents(root)
        status, out, err = self.run_tool("inspect", root, "--json")
        self.assertEqual((status, err), (0, ""))
        summary = json.loads(out)
        self.assertEqual((summary["root"], summary["abort"], summary["minOffset"]), (root, False, 0))
        self.assertEqual(summary["lastStop"], "clean")
        self.assertEqual(summary["maxOffset"], len(Path(self.log_path(root)).read_bytes().rstrip(b"\0")))
        (log,) = summary["log"]
        self.assertEqual((log["used"], log["size"]), (summary["maxOffset"], 4096))
        self.assertEqual((log["firstStoreTime"], log["lastStoreTime"]), (1_700_000_000_000,) * 2)
        queues = [
            (queue["topic"], queue["queueId"], queue["minOffset"], queue["maxOffset"]) for queue in summary["queues"]
        ]
        self.assertEqual(queues, [("TopicTest", 0, 0, 3), ("TopicTest", 1, 0, 3)])
        self.assertEqual(summary["index"][0]["entries"], 6)
        self.assertEqual(summary["checkpoint"]["physicMsgTimestamp"], 1_700_000_000_000)
        self.assertEqual(self.contents(root), before)

    def test_text(self):
        root = self.make()
        os.mkdir(os.path.join(root, "config"))
        Path(root, "config", "topics.json").write_text("{}")
        Path(root, "abort").touch()
        status, out, _ = self.run_tool("inspect", root)
        self.assertEqual(status, 0)
        for part in ("not cleanly", "0" * 20, "TopicTest:1", "config/topics.json", "2023-11-1"):
            self.assertIn(part, out)

    def test_malformed_index_file_is_listed(self):
        root = self.make()
        Path(root, "index", "20200101000000000").write_bytes(b"?")
        self.assertEqual(self.run_tool("inspect", root)[0], 0)
        self.assertIn("20200101000000000", self.run_tool("inspect", root)[1])


class VerifyTests(StoreToolTestCase):
    def test_a_sound_store(self):
        root = self.make()
        before = self.contents(root)
        status, out, err = self.run_tool("verify", root)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.count("\n"), 1)
        self.assertIn("no damage; 6 records", out)
        self.assertEqual(self.contents(root), before)

    def test_damage_is_named_with_file_place_and_advice(self):
        root = self.make()
        self.flip(self.log_path(root), 89)
        status, out, _ = self.run_tool("verify", root)
        self.assertEqual(status, 1)
        self.assertIn(f"damage: commitlog/{'0' * 20} at 0: ", out)
        self.assertIn(f"run: rocketd store repair --write --replace-damaged {root}", out)
        status, out, _ = self.run_tool("verify", root, "--json")
        result = json.loads(out)
        (finding,) = result["findings"]
        self.assertEqual((status, result["damaged"], result["records"]), (1, True, 5))
        self.assertEqual(
            (finding["problem"], finding["path"], finding["position"]), ("body-crc", self.log_path(root), 0)
        )
        self.assertIn("--replace-damaged", finding["advice"])

    def test_progress_is_shown_on_a_terminal(self):
        terminal = Terminal()
        self.run_tool("verify", self.make(), err=terminal)
        self.assertIn("%", terminal.getvalue())
        self.assertTrue(terminal.getvalue().endswith("\r"))

    def test_progress_bar(self):
        terminal = Terminal()
        times = iter((0.0, 0.05, 0.2, 0.4))
        with ProgressBar(terminal, lambda: next(times)) as bar:
            for done in (0, 1, 50, 100):
                bar.show(done, 100)
        self.assertEqual(
            [part.strip() for part in terminal.getvalue().split("\r")[1:4]],
            [
                "[" + " " * 30 + "]   0%",
                "[" + "#" * 15 + " " * 15 + "]  50%",
                "[" + "#" * 30 + "] 100%",
            ],
        )

    def test_delay_levels_and_sizes_of_a_configuration(self):
        delayed = make_message(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x012", tags_code=1_700_000_007_000)
        root = self.make(delayed)
        self.assertEqual(self.run_tool("verify", root)[0], 1)
        config = self.mktemp()
        sizes = "mapedFileSizeCommitLog=4096\nmapedFileSizeConsumeQueue=200\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
        Path(config).write_text("messageDelayLevel=1s 7s\n" + sizes.replace("maped", "mapped"))
        status, out, err = self.run_tool("verify", root, "--config", config)
        self.assertEqual((status, err), (0, ""), out)


class DumpTests(StoreToolTestCase):
    def lines(self, *arguments):
        status, out, err = self.run_tool("dump", *arguments)
        self.assertEqual((status, err), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def test_fields(self):
        v6 = bytes(15) + b"\x01" + (9).to_bytes(4, "big")
        root = self.make(make_message(b"hi", key="k", flag=3, reconsume_times=2, born_host=v6))
        (record,) = self.lines(root)
        self.assertEqual(
            {name: record[name] for name in ("topic", "queueId", "queueOffset", "commitLogOffset", "flag", "sysFlag")},
            {"topic": "TopicTest", "queueId": 0, "queueOffset": 0, "commitLogOffset": 0, "flag": 3, "sysFlag": 16},
        )
        self.assertEqual((record["bornHost"], record["storeHost"]), ("[::1]:9", "5.6.7.8:10911"))
        self.assertEqual((record["bornTimestamp"], record["storeTimestamp"]), (1_700_000_000_000,) * 2)
        self.assertEqual(
            (record["properties"], record["reconsumeTimes"], record["bodyLength"]), ({"UNIQ_KEY": "k"}, 2, 2)
        )
        self.assertNotIn("body", record)

    def test_bodies(self):
        root = self.make(make_message("grüß dich".encode()), make_message(b"\xff\x00"))
        first, second = self.lines(root, "--body")
        self.assertEqual((first["body"], base64.b64decode(second["bodyBase64"])), ("grüß dich", b"\xff\x00"))

    def test_parts_of_the_log_and_of_a_queue(self):
        root = self.make()
        all_of_them = self.lines(root)
        self.assertEqual(len(all_of_them), 6)
        third = all_of_them[2]["commitLogOffset"]
        self.assertEqual(self.lines(root, "--from", str(third), "--count", "2"), all_of_them[2:4])
        self.assertEqual(self.lines(root, "--queue", "TopicTest:1"), all_of_them[1::2])
        self.assertEqual(self.lines(root, "--queue=TopicTest:1", "--from=1", "--count=1"), all_of_them[3:4])

    def test_dump_of_missing_position_is_status_1(self):
        root = self.make()
        for arguments in (("--from", "1"), ("--from", "99999"), ("--queue", "Other:0")):
            status, out, err = self.run_tool("dump", root, *arguments)
            self.assertEqual((status, out, err.count("\n")), (1, "", 1))

    def test_damage_is_passed_over(self):
        root = self.make()
        self.flip(self.log_path(root), 89)
        for arguments, count in (((), 5), (("--queue", "TopicTest:0"), 2)):
            status, out, err = self.run_tool("dump", root, *arguments)
            self.assertEqual((status, out.count("\n")), (1, count))
            self.assertIn("CRC", err)


class RepairTests(StoreToolTestCase):
    def damaged(self):
        root = self.make()
        self.flip(os.path.join(root, "consumequeue", "TopicTest", "1", "0" * 20), 26)
        return root

    def test_nothing_to_do(self):
        root = self.make()
        for arguments in ((), ("--write",)):
            status, out, _ = self.run_tool("repair", root, *arguments)
            self.assertEqual((status, out.count("\n")), (0, 1))
            self.assertIn("no damage", out)

    def test_repair_without_write_only_lists_the_steps(self):
        root = self.damaged()
        before = self.contents(root)
        for arguments in ((), ("--dry-run",)):
            status, out, _ = self.run_tool("repair", root, *arguments)
            self.assertEqual(status, 1)
            self.assertIn("would: rebuild queue TopicTest-1 from the log\n", out)
        self.assertEqual(self.contents(root), before)

    def test_write(self):
        root = self.damaged()
        old = self.contents(root)
        status, out, _ = self.run_tool("repair", root, "--write")
        self.assertEqual(status, 0, out)
        self.assertIn("repair: rebuild queue TopicTest-1 from the log\n", out)
        self.assertEqual(self.run_tool("verify", root)[0], 0)
        (aside,) = [name for name in os.listdir(root) if name.startswith("rocketd-repair-")]
        queue = os.path.join("consumequeue", "TopicTest", "1", "0" * 20)
        self.assertEqual(Path(root, aside, queue).read_bytes(), old[Path(root, queue)])

    def test_unrepairable_damage_is_named_with_status_1(self):
        root = self.make()
        self.flip(self.log_path(root), 89)
        status, out, _ = self.run_tool("repair", root, "--write")
        self.assertEqual(status, 1)
        self.assertIn("--replace-damaged", out)
        status, out, err = self.run_tool("repair", root, "--write", "--replace-damaged", "--json")
        self.assertEqual((status, json.loads(out)["damaged"]), (0, False))
        self.assertIn("repair: ", err)

    def test_a_cut_index_file_is_made_again(self):
        root = self.make()
        (name,) = os.listdir(os.path.join(root, "index"))
        os.truncate(os.path.join(root, "index", name), 100)
        status, out, err = self.run_tool("verify", root)
        self.assertEqual((status, err), (1, ""))
        self.assertIn(f"index/{name} at ", out)
        status, out, err = self.run_tool("repair", "--write", root)
        self.assertEqual((status, err), (0, ""), out)
        self.assertIn("repair: rebuild the index from the log", out)

    def test_log_without_its_last_file_is_repaired(self):
        root = self.make(*[make_message(bytes(1000), key=f"k{n}") for n in range(6)])
        os.unlink(os.path.join(root, "commitlog", f"{4096:020}"))
        status, out, err = self.run_tool("verify", root)
        self.assertEqual((status, err), (1, ""))
        self.assertIn("and ends at 4096: its last file is missing or was emptied", out)
        status, out, err = self.run_tool("repair", "--write", root)
        self.assertEqual((status, err), (0, ""), out)
        store = MessageStore(small_config(root), STORE_HOST)
        store.start()
        self.assertEqual(store.max_physical_offset(), 4096)
        store.stop()

    def test_a_plan_as_json(self):
        root = self.make()
        status, out, _ = self.run_tool("repair", "--json", root)
        self.assertEqual((status, json.loads(out)["findings"]), (0, []))
        self.flip(self.log_path(root), 100)
        status, out, _ = self.run_tool("repair", "--json", root)
        self.assertEqual(status, 1)
        self.assertNotEqual(json.loads(out)["findings"], [])

    def test_index_alone(self):
        root = self.make()
        old = self.contents(root)
        shutil.rmtree(os.path.join(root, "index"))
        config = self.mktemp()
        Path(config).write_text(
            "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
        )
        status, out, _ = self.run_tool("repair", root, "--write", "--index", "--config", config)
        self.assertEqual(status, 0, out)
        (path,) = Path(root, "index").iterdir()
        self.assertEqual(path.read_bytes(), next(data for name, data in old.items() if name.parent.name == "index"))
