"""Notes about changes by administrators: their content, their limits, and a disk that fails."""

import json

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies.audit import MAX_CHANGES
from rocketd.remoting.errors import RequestError
from rocketd.remoting.serving.audit import MAX_SUBJECT_CHARACTERS, MAX_VALUE_CHARACTERS, Audit
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.broker import RecordingConnection

NOW_MS = 1_795_953_301_007


class Lines:
    def __init__(self):
        self.lines = []
        self.asked = []
        self.error = None

    def append(self, line):
        if self.error is not None:
            raise self.error
        self.lines.append(line)

    def last(self, count, max_bytes):
        if self.error is not None:
            raise self.error
        self.asked.append(count)
        return self.lines


class Context:
    connection = RecordingConnection("10.0.0.7:4097")


class AuditTests(SynchronousTestCase):
    def setUp(self):
        self.lines = Lines()
        self.audit = Audit(self.lines, lambda: NOW_MS, lambda address, request: f"{request.code} from {address}")

    def note(self, *values, **more):
        self.audit.note(RemotingCommand(17), Context(), *values, **more)

    def answered(self, count=5):
        request = RemotingCommand(RequestCode.GET_ADMIN_CHANGES, {"count": str(count)})
        return json.loads(self.audit.answer(request).body)["changes"]

    def test_note_tells_who_did_what_and_the_values(self):
        self.note("set topic", "T", None, {"queues": 4})
        (change,) = self.answered()
        self.assertEqual(
            change,
            {
                "time": "2026-11-29T11:55:01.007Z",
                "address": "10.0.0.7:4097",
                "account": "17 from 10.0.0.7:4097",
                "action": "set topic",
                "subject": "T",
                "after": {"queues": 4},
            },
        )

    def test_long_subject_and_values_are_cut_off(self):
        self.note("set", "s" * 100_000, "b" * 100_000, ["a"] * 100_000)
        (change,) = self.answered()
        self.assertEqual(len(change["subject"]), MAX_SUBJECT_CHARACTERS)
        self.assertEqual(len(change["before"]), MAX_VALUE_CHARACTERS + 1)
        self.assertEqual(change["after"][:6], '["a","')

    def test_half_of_a_character_is_noted(self):
        self.note("set", "\ud800T", "\udc00", "fine")
        (change,) = self.answered()
        self.assertEqual((change["subject"], change["after"]), ("?T", "fine"))

    def test_lines_that_cannot_be_read_are_left_out(self):
        self.note("set", "one")
        self.lines.lines += [b"{", b"\xff", b"[]", b'{"time": 1}']
        self.note("set", "two")
        self.assertEqual([change["subject"] for change in self.answered()], ["one", "two"])

    def test_answer_has_a_limited_number_of_changes(self):
        self.answered(2**31 - 1)
        self.answered(3)
        self.assertEqual(self.lines.asked, [MAX_CHANGES, 3])

    def test_full_disk_is_logged_and_the_change_goes_on(self):
        self.lines.error = OSError(28, "No space left on device")
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        self.note("set", "T")
        (line,) = map(formatEvent, lines)
        self.assertIn("the audit file cannot be written: [Errno 28] No space left", line)
        error = self.assertRaises(RequestError, self.answered)
        self.assertIn("the audit file cannot be read", error.remark)

    def test_secret_settings_cannot_be_changed_by_requests(self):
        """So no secret gets into the audit."""
        for settings in (BrokerSettings, NamesrvSettings):
            secret = [setting for _, setting in settings.declared() if setting.secret]
            self.assertGreaterEqual(len(secret), 2)
            self.assertEqual([setting.name for setting in secret if setting.remote], [])
