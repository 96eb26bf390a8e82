"""Clients to measure can be added while another thread reads their numbers."""

from threading import Thread
from weakref import WeakSet

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.measured import MeasuredClients
from rocketd.client.sync import Producer

PAUSE = 0.1
"""Time in seconds for another thread to add a client, if it can."""


class PausingSet(WeakSet):
    """Calls a function, if there is one, at the first step of an iteration."""

    at_first_step = None

    def __iter__(self):
        for each in super().__iter__():
            if self.at_first_step is not None:
                at_first_step, self.at_first_step = self.at_first_step, None
                at_first_step()
            yield each


class MeasuredClientsTests(SynchronousTestCase):
    def test_client_can_be_added_while_another_thread_reads(self):
        clients = [Producer(f"g{number}") for number in range(4)]
        for read in (MeasuredClients.stats, MeasuredClients.lags):
            measured = MeasuredClients()
            measured._clients = PausingSet()
            measured.add(*clients[:3])
            adding = Thread(target=measured.add, args=clients[3:])

            def add(adding=adding):
                adding.start()
                adding.join(PAUSE)

            measured._clients.at_first_step = add
            self.assertFalse(read(measured))  # none is open
            adding.join()
            self.assertEqual(set(measured._clients), set(clients))
