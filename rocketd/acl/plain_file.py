"""One file of accounts: its content, and the same with changes.

Counterpart: the reading and writing of plain_acl.yml in `PlainPermissionManager` (Apache). A file is accepted as a
whole or not at all. A rewritten file keeps unknown members and the comments at its top. Other comments are lost, as
usual for YAML.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import yaml

from rocketd.acl.accounts import Account, AccountConfig
from rocketd.acl.addresses import AddressRule, address_rule
from rocketd.acl.errors import AclError, AclFileError
from rocketd.acl.file_warnings import unknown_members, warnings_of_account
from rocketd.acl.yaml_text import TextLoader, dump, is_true, place_of

WHITE_ADDRESSES = "globalWhiteRemoteAddresses"
ACCOUNTS = "accounts"
DATA_VERSION = "dataVersion"

_TEXTS = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "whiteRemoteAddress": "white_remote_address",
    "defaultTopicPerm": "default_topic_perm",
    "defaultGroupPerm": "default_group_perm",
}
_LISTS = {"topicPerms": "topic_perms", "groupPerms": "group_perms"}
_MEMBERS = (WHITE_ADDRESSES, ACCOUNTS, DATA_VERSION)
_ACCOUNT_MEMBERS = (*_TEXTS, "admin", *_LISTS)


@dataclass(frozen=True)
class Version:
    """Version of a file: ``timestamp`` of the last change in milliseconds, ``counter`` of all changes."""

    counter: int
    timestamp: int


@dataclass
class PlainFile:
    """The content of a file.

    - ``document`` is its YAML, with every scalar as a text.
    - ``head`` are the comments before it.
    - ``warnings`` are warnings about meaningless parts, each a line without the file's name.
    """

    path: str
    document: dict[str, Any] = field(default_factory=dict, repr=False)
    head: str = ""
    white_addresses: list[str] = field(default_factory=list)
    white_rules: list[AddressRule] = field(default_factory=list, repr=False)
    configs: list[AccountConfig] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    version: Version | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether the file is empty."""
        return not self.document

    # ---------------------------------------------------------------- changes

    def with_account(self, config: AccountConfig, now_ms: int) -> str:
        """Return the text of the file with an account set as the last one. Parts missing in ``config`` are kept."""
        document = deepcopy(self.document)
        accounts = document.get(ACCOUNTS) or []
        entry = next((entry for entry in accounts if entry.get("accessKey") == config.access_key), None)
        if entry is None:
            entry = {}
        else:
            accounts.remove(entry)
        for name, attribute in _TEXTS.items():
            value = getattr(config, attribute)
            # Apache's clients never send an empty permission, and an empty one would change nothing there either.
            if value or (value is not None and name == "whiteRemoteAddress"):
                entry[name] = value
            if name == "whiteRemoteAddress":
                entry["admin"] = config.admin
        for name, attribute in _LISTS.items():
            if getattr(config, attribute) is not None:
                entry[name] = getattr(config, attribute)
        document[ACCOUNTS] = [*accounts, entry]
        return self._written(document, now_ms)

    def without_account(self, access_key: str, now_ms: int) -> str | None:
        """Return the text of the file without an account, None if it does not have it."""
        document = deepcopy(self.document)
        accounts = document.get(ACCOUNTS) or []
        rest = [entry for entry in accounts if entry.get("accessKey") != access_key]
        if len(rest) == len(accounts):
            return None
        document[ACCOUNTS] = rest
        return self._written(document, now_ms)

    def with_white_addresses(self, addresses: list[str], now_ms: int) -> str:
        """Return the text of the file with other global white addresses."""
        return self._written({**deepcopy(self.document), WHITE_ADDRESSES: addresses}, now_ms)

    def _written(self, document: dict[str, Any], now_ms: int) -> str:
        counter = 1 if self.version is None else self.version.counter + 1
        document[DATA_VERSION] = [{"counter": counter, "timestamp": now_ms}]
        for entry in document.get(ACCOUNTS) or ():
            if entry.get("admin") is not None and not isinstance(entry["admin"], bool):
                entry["admin"] = is_true(entry["admin"])
        return self.head + dump(document)


def parse(data: bytes, path: str) -> PlainFile:
    """Parse a file's content. Raises AclFileError, with the line if possible."""
    try:
        text = data.decode()
        loader = TextLoader(text)
        try:
            node = loader.get_single_node()
            document = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise AclFileError(f"{path}: {place_of(error)}") from error
    except UnicodeDecodeError as error:
        raise AclFileError(f"{path}: byte {error.start} is not UTF-8") from error
    if document is None:
        return PlainFile(path, head=_head(text))
    if not isinstance(document, dict):
        raise AclFileError(f"{path}: {WHITE_ADDRESSES} and {ACCOUNTS} were expected, each with a list")
    return _Reader(path, node, text).read(document, _head(text))


class _Reader:
    """Builds a PlainFile from a document, or raises an error with the line."""

    def __init__(self, path: str, node: Any, text: str) -> None:
        self._path = path
        self._lines: dict[str, list[int]] = {}
        # Members with an anchor exist only to be referenced.
        self._shared = {key.value for key, value in node.value if text.startswith("&", value.start_mark.index)}
        for key, value in node.value:
            if isinstance(value, yaml.SequenceNode):
                self._lines[key.value] = [entry.start_mark.line + 1 for entry in value.value]

    def read(self, document: dict[str, Any], head: str) -> PlainFile:
        addresses = self._texts(document.get(WHITE_ADDRESSES), WHITE_ADDRESSES)
        rules = []
        for index, address in enumerate(addresses or ()):
            try:
                rules.append(address_rule(address))
            except AclError as error:
                raise self._fault(WHITE_ADDRESSES, index, str(error)) from error
        entries = document.get(ACCOUNTS)
        if entries is not None and not isinstance(entries, list):
            raise AclFileError(f"{self._path}: {ACCOUNTS} must be a list")
        warnings = list(unknown_members(document, _MEMBERS, self._shared))
        configs, accounts = [], []
        for index, entry in enumerate(entries or ()):
            try:
                config = self._config(entry)
                accounts.append(Account.of(config))
            except AclError as error:
                raise self._fault(ACCOUNTS, index, str(error)) from error
            configs.append(config)
            warnings += [self._at(ACCOUNTS, index, what) for what in warnings_of_account(entry, _ACCOUNT_MEMBERS)]
        version = self._version(document.get(DATA_VERSION))
        return PlainFile(self._path, document, head, addresses or [], rules, configs, accounts, version, warnings)

    def _config(self, entry: object) -> AccountConfig:
        if not isinstance(entry, dict):
            raise AclError("an account must be a map with accessKey and secretKey")
        values: dict[str, Any] = {"admin": is_true(entry.get("admin"))}
        for name, attribute in _TEXTS.items():
            value = entry.get(name)
            if value is not None and not isinstance(value, str):
                raise AclError(f"{name} must be a text")
            values[attribute] = value
        for name, attribute in _LISTS.items():
            values[attribute] = self._texts(entry.get(name), name)
        return AccountConfig(**values)

    def _texts(self, value: object, name: str) -> list[str] | None:
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise AclFileError(f"{self._path}: {name} must be a list of texts")
        return value

    def _version(self, value: Any) -> Version | None:
        if not value:
            return None
        try:
            return Version(int(value[0]["counter"]), int(value[0]["timestamp"]))
        except (KeyError, TypeError, ValueError, IndexError):
            raise AclFileError(f"{self._path}: {DATA_VERSION} must hold one counter and timestamp") from None

    def _fault(self, name: str, index: int, what: str) -> AclFileError:
        return AclFileError(f"{self._path}: {self._at(name, index, what)}")

    def _at(self, name: str, index: int, what: str) -> str:
        lines = self._lines.get(name, ())
        line = f"line {lines[index]}, " if index < len(lines) else ""
        return f"{line}{name} number {index + 1}: {what}"


def _head(text: str) -> str:
    """Return the comments and empty lines at the beginning of a text."""
    head = []
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            break
        head.append(line)
    return "".join(head)
