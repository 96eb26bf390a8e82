"""How often tests kill things."""

import os

KILLS = int(os.environ.get("ROCKETD_SPARK_KILLS", "2"))
"""How often each test that kills something does it."""
