"""Lines of JSON for terminals and other programs. It imports no client, so that short commands start fast."""

import json

from rocketd.common.command_line.output import CONTROLS


def json_text(value: object) -> str:
    """Return a line of JSON without characters that a terminal obeys."""
    text = json.dumps(value, ensure_ascii=False)
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
