"""Two redrives of one group at the same time could send a letter twice."""

from types import SimpleNamespace
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.console.errors import ConsoleError
from rocketd.console.pages.dead_letters import redrive
from rocketd.console.pages.visit import Visit


class RedriveTests(SynchronousTestCase):
    def test_second_redrive_of_a_group_is_refused_until_the_first_ends(self):
        pages = []

        class Reader:
            def __init__(self, *arguments, **keywords):
                self.page = Deferred()
                pages.append(self.page)

            async def next_page(self):
                return await self.page

        def begin(group):
            return Deferred.fromCoroutine(redrive(Visit(SimpleNamespace(client=None), {"group": group})))

        place = "rocketd.console.pages.dead_letters"
        with mock.patch(f"{place}.DeadLetterReader", Reader), mock.patch(f"{place}.Redriver"):
            first, other = begin("shop"), begin("warehouse")
            self.failureResultOf(begin("shop"), ConsoleError)
            self.assertEqual(len(pages), 2)
            for page in pages:
                page.callback(None)
            self.successResultOf(first)
            self.successResultOf(other)
            begin("shop")
            self.assertEqual(len(pages), 3)
            pages[2].callback(None)
