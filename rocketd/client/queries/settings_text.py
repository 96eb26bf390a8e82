"""Settings of servers as the text that requests and answers carry: a ``name=value`` per line. Pure functions."""

from collections.abc import Mapping

from rocketd.client.errors import UsageError


def settings_of(body: bytes | None) -> dict[str, str]:
    """Return the settings in the body of an answer."""
    lines = (body or b"").decode("utf-8", "replace").splitlines()
    return {name: value for name, separator, value in (line.partition("=") for line in lines) if separator}


def properties_text(settings: Mapping[str, str]) -> bytes:
    """Return the body of a request that changes settings. Raises UsageError for a name or value that cannot be sent."""
    for name, value in settings.items():
        if not (isinstance(name, str) and isinstance(value, str)) or not name or not (name + value).isprintable():
            raise UsageError(f"setting {name!r}={value!r}: accepted are printable texts")
        if "=" in name or ":" in name or " " in name or value != value.strip():
            raise UsageError(f"setting {name!r}={value!r}: a name has no blank, = or :, a value no blanks around it")
    return "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items()).encode()
