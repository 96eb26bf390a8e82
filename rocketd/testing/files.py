"""The files of a cluster outside of its memory disks: certificates and accounts, in a temporary directory.

Servers read them from the real file system, and so do programs in other languages.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from secrets import token_hex

from rocketd.acl.accounts import Account, AccountConfig
from rocketd.acl.errors import AclError
from rocketd.acl.permissions import PERMISSIONS, check_entries
from rocketd.acl.plain_file import PlainFile, parse
from rocketd.acl.yaml_text import dump
from rocketd.client.errors import IllegalOptionError
from rocketd.testing.authority import TlsFiles, write_certificates

BROKERS_ACCOUNT = "rocketd-testing"
"""Account of the brokers themselves: slaves ask their master."""


class ClusterFiles:
    """The directory, from ``make`` to ``remove``. Any thread, one at a time.

    ``brokers_ask`` tells whether brokers ask each other, so they need an account.
    """

    def __init__(self, tls_mode: str | None, accounts: Iterable[AccountConfig], *, brokers_ask: bool) -> None:
        self._tls_mode = tls_mode
        self._accounts = list(accounts)
        self._brokers_ask = brokers_ask
        self._secret = token_hex(16)
        self._process = 0
        self._directory: str | None = None
        self.tls: TlsFiles | None = None

    def make(self) -> None:
        """Make the directory, if any file is needed."""
        if self._tls_mode is None and not self._accounts:
            return
        self._directory = tempfile.mkdtemp(prefix="rocketd-testing-")
        self._process = os.getpid()
        atexit.register(self.remove)
        if self._tls_mode is not None:
            self.tls = write_certificates(self._directory)

    def remove(self) -> None:
        """Remove the directory. A forked child leaves it to its parent."""
        directory, self._directory = self._directory, None
        self.tls = None
        atexit.unregister(self.remove)
        if directory is not None and os.getpid() == self._process:
            shutil.rmtree(directory, ignore_errors=True)

    def server_settings(self) -> Mapping[str, object]:
        """Return the settings of each server."""
        return {} if self.tls is None or self._tls_mode is None else self.tls.server_settings(self._tls_mode)

    def broker_settings(self, broker: str) -> Mapping[str, object]:
        """Return the settings of a broker. Its account file is written if it does not exist yet."""
        settings = dict(self.server_settings())
        if self.tls is not None:
            settings |= self.tls.client_settings()
        if self._accounts and self._directory is not None:
            home = os.path.join(self._directory, broker)
            settings |= {"aclEnable": True, "aclStrict": True, "rocketmqHome": home}
            if self._brokers_ask:
                settings["aclCredentialsFile"] = "conf/tools.yml"
            if not os.path.isdir(home):
                self._write_accounts(os.path.join(home, "conf"))
        return settings

    def _write_accounts(self, directory: str) -> None:
        os.makedirs(directory, 0o700)
        path = os.path.join(directory, "plain_acl.yml")
        own = [AccountConfig(BROKERS_ACCOUNT, self._secret, admin=True)] if self._brokers_ask else []
        file = PlainFile(path)
        text = ""
        for account in (*self._accounts, *own):
            text = file.with_account(account, now_ms=0)
            file = parse(text.encode(), path)
        _write(path, text)
        _write(os.path.join(directory, "tools.yml"), dump({"accessKey": BROKERS_ACCOUNT, "secretKey": self._secret}))


def check_account(account: AccountConfig) -> None:
    """Raise IllegalOptionError for an account refused or misunderstood by brokers."""
    if not isinstance(account, AccountConfig):
        raise IllegalOptionError(f"accounts: accepted are AccountConfig objects, not {account!r}")
    try:
        check_entries(account.topic_perms)
        check_entries(account.group_perms)
        Account.of(account)
    except AclError as error:
        raise IllegalOptionError(f"account {account.access_key!r}: {error}") from None
    for permission in (account.default_topic_perm, account.default_group_perm):
        if permission is not None and permission not in PERMISSIONS:
            raise IllegalOptionError(
                f"account {account.access_key!r}: {permission!r} is not a permission; accepted are "
                f"{', '.join(PERMISSIONS)}"
            )


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
