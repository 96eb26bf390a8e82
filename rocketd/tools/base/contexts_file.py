"""The file of contexts: named clusters with their name servers, account file and TLS.

It is ``rocketd/contexts.toml`` in the user's directory for settings. It has paths of account files, and no secret.
"""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import click

from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import name_servers
from rocketd.common.suggest import did_you_mean

CONTEXT_VARIABLE: Final = "ROCKETD_CONTEXT"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEYS: Final = frozenset(("namesrv", "credentials", "tls", "tls_ca"))


@dataclass(frozen=True)
class ClusterContext:
    """A named cluster. ``credentials`` is the path of a file; ``tls`` and ``tls_ca`` are those of ClientConfig."""

    namesrv: str
    credentials: str | None = None
    tls: bool | Literal["unverified"] = False
    tls_ca: str | None = None


@dataclass
class Contexts:
    """All contexts by name, and the name of the one in use."""

    named: dict[str, ClusterContext] = field(default_factory=dict)
    used: str | None = None

    def get(self, name: str) -> ClusterContext:
        """Return a context. Raises CommandError if the name is unknown."""
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none"
            raise CommandError(f"context {name} is unknown{did_you_mean(name, self.named)}; known are {known}")
        return self.named[name]

    def write(self) -> None:
        """Replace the file. Raises CommandError if it cannot be written."""
        lines = ["# Written by rocketd context."]
        if self.used is not None:
            lines.append(f"used = {_quoted(self.used)}")
        for name, context in sorted(self.named.items()):
            lines += ["", f"[contexts.{name}]", f"namesrv = {_quoted(context.namesrv)}"]
            if context.credentials is not None:
                lines.append(f"credentials = {_quoted(context.credentials)}")
            if context.tls:
                lines.append(f"tls = {_quoted(context.tls) if isinstance(context.tls, str) else 'true'}")
            if context.tls_ca is not None:
                lines.append(f"tls_ca = {_quoted(context.tls_ca)}")
        path = contexts_path()
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_text("\n".join(lines) + "\n", "utf-8", "surrogateescape")
            os.replace(new, path)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from error


def contexts_path() -> Path:
    """Return the path of the file."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home, "rocketd", "contexts.toml")


def context_name(text: str) -> str:
    """Read the name of a context."""
    if not _NAME.fullmatch(text):
        raise click.BadParameter(f"{text!r}: accepted are up to 64 letters, digits, - and _")
    return text


def read_contexts() -> Contexts:
    """Read the file. Without it the result is empty. Raises CommandError if it cannot be read, or has another form."""
    path = contexts_path()
    if not path.exists():
        return Contexts()
    import tomllib  # few commands have such a file to read

    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
    except FileNotFoundError:
        return Contexts()
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    named, used = content.get("contexts", {}), content.get("used")
    if not isinstance(named, dict) or not isinstance(used, str | None):
        raise CommandError(f"{path}: accepted are the name used and tables [contexts.NAME]")
    return Contexts({name: _context(path, name, table) for name, table in named.items()}, used)


def _context(path: Path, name: str, table: object) -> ClusterContext:
    def refuse(fault: str) -> CommandError:
        return CommandError(f"{path}: context {name}: {fault}")

    if not _NAME.fullmatch(name) or not isinstance(table, dict):
        raise refuse("accepted is a table [contexts.NAME] with a name of letters, digits, - and _")
    if unknown := table.keys() - _KEYS:
        raise refuse(f"unknown key {min(unknown)}; accepted are {', '.join(sorted(_KEYS))}")
    tls = table.get("tls", False)
    if not (isinstance(tls, bool) or tls == "unverified"):
        raise refuse(f"tls is {tls!r}; accepted is true, false or 'unverified'")
    texts = [table.get(key) for key in ("namesrv", "credentials", "tls_ca")]
    if not isinstance(texts[0], str) or not all(isinstance(text, str | None) for text in texts):
        raise refuse("namesrv is needed; namesrv, credentials and tls_ca are texts")
    try:
        name_servers(texts[0])
    except click.BadParameter as error:
        raise refuse(f"namesrv {error.message}") from None
    return ClusterContext(texts[0], texts[1], tls, texts[2])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
