"""All files of accounts together: loading, watching, changing.

Counterpart: `PlainPermissionManager` and `AclFileWatchService` (Apache). Unlike Apache, an unusable file does no harm:
its previous accounts stay until it is usable again. Changes by requests apply at once.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from twisted.logger import Logger

from rocketd.acl import disk
from rocketd.acl.accounts import Account, AccountConfig
from rocketd.acl.addresses import AddressRule, address_rule
from rocketd.acl.errors import AclError, AclFileError
from rocketd.acl.permissions import check_entries
from rocketd.acl.plain_file import PlainFile, Version, parse
from rocketd.acl.rules import AccessRules


@dataclass
class _Watched:
    """A file as last read: its bytes (None if that failed), and its last usable content."""

    data: bytes | None
    content: PlainFile | None
    loaded_ms: int


class PlainPermissionManager:
    """The accounts of a broker.

    New accounts go to ``default_file``. ``directory`` is searched for more files; None means no directory. ``rules``
    may be read by any thread. All methods belong to one thread other than the reactor's, because they read and write
    files.
    """

    _log = Logger()

    def __init__(
        self, default_file: str, directory: str | None, now_ms: Callable[[], int], *, strict: bool = False
    ) -> None:
        self.default_file = os.path.normpath(default_file)
        self.rules = AccessRules(strict=strict)
        self._directory = directory
        self._now_ms = now_ms
        self._strict = strict
        self._files: dict[str, _Watched] = {}
        self._made_ms = now_ms()

    # ---------------------------------------------------------------- loading

    def load(self) -> None:
        """Read all files at start. Raises AclFileError for the first unusable one."""
        for path in self._paths():
            self._files[path] = _Watched(self._read(path), None, self._now_ms())
            self._files[path].content = content = parse(self._files[path].data or b"", path)
            self._log_warnings(content)
            if disk.others_can_read(path):
                self._log.warn("{path} holds secrets and can be read by every user of this machine", path=path)
        self._apply()
        self._log.info(
            "access control: {accounts} accounts of {files}", accounts=len(self.rules.accounts), files=self._sources()
        )

    def _sources(self) -> str:
        return ", ".join(self._files) or f"no file: {self.default_file} does not exist"

    def _log_warnings(self, content: PlainFile) -> None:
        for warning in content.warnings:
            self._log.warn("access control: {path}: {text}", path=content.path, text=warning)

    def reload(self) -> None:
        """Apply changes on disk. Unusable files are logged with one line."""
        paths = self._paths()
        changed = False
        for path in [path for path in self._files if path not in paths]:
            self._log.warn("{path} was removed, and its accounts with it", path=path)
            del self._files[path]
            changed = True
        for path in paths:
            changed = self._reload_file(path) or changed
        if changed:
            self._apply()

    def _paths(self) -> list[str]:
        found = [] if self._directory is None else [os.path.normpath(path) for path in disk.list_files(self._directory)]
        if self.default_file not in found and os.path.exists(self.default_file):
            found.append(self.default_file)
        return found

    def _read(self, path: str) -> bytes:
        try:
            return disk.read(path)
        except OSError as error:
            raise AclFileError(f"{path}: {error.strerror}") from error

    def _reload_file(self, path: str) -> bool:
        """Read one file. Return whether its accounts may have changed."""
        known = self._files.setdefault(path, _Watched(None, None, 0))
        try:
            data = self._read(path)
        except AclFileError as error:
            if known.data is not None or known.content is None:
                self._complain(known, str(error))
            known.data = None
            return False
        if data == known.data:
            return False
        known.data = data
        try:
            content = parse(data, path)
            if content.is_empty and known.content is not None and not known.content.is_empty:
                raise AclFileError(f"{path}: it is empty")
        except AclFileError as error:
            self._complain(known, str(error))
            return False
        known.content, known.loaded_ms = content, self._now_ms()
        self._log.info("access control: read {path}, {count} accounts", path=path, count=len(content.accounts))
        self._log_warnings(content)
        return True

    def _complain(self, known: _Watched, fault: str) -> None:
        kept = "the file is ignored" if known.content is None else "its previous content stays in force"
        self._log.error("access control: {fault}; {kept}", fault=fault, kept=kept)

    def _apply(self) -> None:
        accounts: dict[str, Account] = {}
        white: list[AddressRule] = []
        for content in self._contents():
            white += content.white_rules
            for account in content.accounts:
                if accounts.setdefault(account.access_key, account) is not account:
                    self._log.warn(
                        "access control: accessKey {key} is defined more than once; the definition in {path} is ignored",
                        key=account.access_key,
                        path=content.path,
                    )
        if not accounts:
            self._log.warn(
                "access control: 0 accounts in {files}: no client can sign in; {served}",
                files=self._sources(),
                served="only clients at white addresses are served" if white else "no client is served",
            )
        self.rules = AccessRules(accounts.values(), white, strict=self._strict)

    def _contents(self) -> list[PlainFile]:
        return [known.content for known in self._files.values() if known.content is not None]

    # ---------------------------------------------------------------- asking

    def white_addresses(self) -> list[str]:
        """Return the global white addresses of all files."""
        self.reload()
        return [address for content in self._contents() for address in content.white_addresses]

    def account_configs(self) -> list[AccountConfig]:
        """Return the configurations of all accounts, each once."""
        self.reload()
        configs: dict[str | None, AccountConfig] = {}
        for content in self._contents():
            for config in content.configs:
                configs.setdefault(config.access_key, config)
        return list(configs.values())

    def versions(self) -> dict[str, Version]:
        """Return the version of each non-empty file by path. A file without one has the time of its reading."""
        return {
            path: known.content.version or Version(0, known.loaded_ms)
            for path, known in self._files.items()
            if known.content is not None and not known.content.is_empty
        }

    def version(self) -> Version:
        """Return the version of the default file."""
        return self.versions().get(self.default_file) or Version(0, self._made_ms)

    # ---------------------------------------------------------------- changing

    def set_account(self, config: AccountConfig) -> None:
        """Create or change an account and write its file. Raises AclError, or OSError if the file cannot be written."""
        if not config.has_good_keys:
            raise AclError(
                f"The accessKey={_java(config.access_key)} and secretKey={_java(config.secret_key)} "
                "cannot be null and length should longer than 6"
            )
        check_entries(config.topic_perms)
        check_entries(config.group_perms)
        Account.of(config)
        content = self._content_of(self._path_of(config.access_key) or self.default_file)
        self._write(content, content.with_account(config, self._now_ms()))

    def delete_account(self, access_key: str) -> bool:
        """Delete an account from its file. Return False if it does not exist. Raises AclError or OSError."""
        path = self._path_of(access_key)
        if path is None:
            return False
        content = self._content_of(path)
        text = content.without_account(access_key, self._now_ms())
        if text is None:
            return False
        self._write(content, text)
        return True

    def set_white_addresses(self, addresses: list[str], path: str | None = None) -> bool:
        """Set the global white addresses of a file, by default the default one. Return False if it is not an accounts
        file.

        Raises AclError or OSError.
        """
        for address in addresses:
            address_rule(address)
        path = os.path.normpath(path) if path else self.default_file
        self.reload()
        if path not in self._files and path != self.default_file:
            return False
        content = self._content_of(path)
        self._write(content, content.with_white_addresses(addresses, self._now_ms()))
        return True

    def _path_of(self, access_key: str | None) -> str | None:
        self.reload()
        for content in self._contents():
            if any(account.access_key == access_key for account in content.accounts):
                return content.path
        return None

    def _content_of(self, path: str) -> PlainFile:
        """Return the present content of a file. Raises AclError if it is unreadable: such a file is not overwritten."""
        known = self._files.get(path)
        if known is None:
            return PlainFile(path)
        return parse(self._read(path), path)

    def _write(self, content: PlainFile, text: str) -> None:
        data = text.encode()
        written = parse(data, content.path)
        disk.replace(content.path, data)
        self._files[content.path] = _Watched(data, written, self._now_ms())
        self._apply()


def _java(text: str | None) -> str:
    return "null" if text is None else text
