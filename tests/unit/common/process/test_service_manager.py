import os
import socket
import tempfile

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.process.service_manager import ServiceManager


class ServiceManagerTests(SynchronousTestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.clock = Clock()
        self.path = os.path.join(directory.name, "socket")

    def manager(self, address=None, **environ):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(address or self.path)
        self.socket.setblocking(False)
        name = self.path if address is None else address.replace("\0", "@")
        return ServiceManager(self.clock, {"NOTIFY_SOCKET": name, **environ})

    def received(self):
        messages = []
        try:
            while True:
                messages.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return messages

    def test_ready_and_stop_are_reported(self):
        manager = self.manager()
        manager.ready("serves\nMAINPID=1")
        manager.stopping()
        self.assertEqual(self.received(), ["READY=1\nSTATUS=serves MAINPID=1", "STOPPING=1\nSTATUS=stopping"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_abstract_socket_is_reached(self):
        manager = self.manager(f"\0rocketd-test-{os.getpid()}")
        manager.ready("x")
        self.assertEqual(self.received(), ["READY=1\nSTATUS=x"])

    def test_reload_is_reported_only_after_ready(self):
        manager = self.manager()
        manager.reloading()
        manager.reloaded()
        self.assertEqual(self.received(), [])
        manager.ready("x")
        self.received()
        manager.reloading()
        manager.reloaded()
        begin, end = self.received()
        self.assertRegex(begin, r"\ARELOADING=1\nMONOTONIC_USEC=\d+\Z")
        self.assertEqual(end, "READY=1")

    def fill(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while True:
                    sender.sendto(b"filled", self.path)

    def test_states_for_full_socket_are_sent_in_order_when_it_has_room(self):
        manager = self.manager()
        manager.ready("x")
        self.fill()
        manager.reloading()
        manager.reloaded()
        self.clock.advance(1)
        self.assertNotIn("READY=1", self.received())
        manager.stopping()
        self.assertEqual(self.received(), [])
        self.clock.advance(1)
        states = [message.partition("\n")[0] for message in self.received()]
        self.assertEqual(states, ["RELOADING=1", "READY=1", "STOPPING=1"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_states_for_full_socket_are_given_up_after_a_time_or_at_the_end(self):
        manager = self.manager()
        self.fill()
        manager.ready("x")
        self.clock.pump([0.1] * 200)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        manager.stopping()
        manager.ended()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(set(self.received()), {"filled"})

    def test_watchdog_gets_three_signs_in_its_limit_until_the_end(self):
        manager = self.manager(WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()))
        self.clock.advance(10)
        self.assertEqual(self.received(), [])
        manager.ready("x")
        self.clock.pump([1, 1, 1])
        manager.stopping()
        self.clock.pump([1])
        manager.ended()
        self.clock.pump([1] * 5)
        self.assertEqual(self.received().count("WATCHDOG=1"), 5)

    def test_watchdog_of_another_process_or_without_limit_gets_no_sign(self):
        for number, environ in enumerate(
            ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"})
        ):
            self.path += str(number)
            self.manager(**environ).ready("x")
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_missing_or_closed_socket_is_ignored(self):
        for address in ("", "relative", self.path):
            manager = ServiceManager(self.clock, {"NOTIFY_SOCKET": address})
            manager.ready("x")
            manager.stopping()
            manager.ended()
