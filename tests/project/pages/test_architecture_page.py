"""The page of the architecture: each file and folder that it names exists."""

import re

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

PAGE = ROOT / "docs" / "architecture.md"


class ArchitecturePageTests(SynchronousTestCase):
    def test_paths_in_the_table_of_places_exist(self):
        table = PAGE.read_text().partition("## Places in the code")[2]
        paths = re.findall(r"`([a-z][\w/]*(?:/|\.py))`", table)
        self.assertGreater(len(paths), 50)
        missing = [path for path in paths if not (ROOT / "rocketd" / path).exists() and not (ROOT / path).exists()]
        self.assertEqual(missing, [])

    def test_rooms_of_the_servers_are_in_the_table_of_places(self):
        table = PAGE.read_text().partition("## Places in the code")[2]
        for package in "remoting", "broker", "store":
            for room in sorted((ROOT / "rocketd" / package).glob("*/__init__.py")):
                if room.parent.name != "base":
                    self.assertIn(f"`{package}/{room.parent.name}/", table)
