"""The rules for checking requests, an immutable snapshot.

Counterpart: the checks of `PlainPermissionManager` (Apache), in their order: global white addresses, the account, its
white address, the signature, permissions. Any thread may use a snapshot while a new one replaces it.
"""

from collections.abc import Callable, Iterable, Mapping

from rocketd.acl.accounts import ADMIN_CODES, OWN_ADMIN_CODES, Account
from rocketd.acl.addresses import AddressRule, canonical, nobody
from rocketd.acl.errors import NoAccessKeyError, SignatureError, UnknownAccessKeyError
from rocketd.acl.permissions import TRACE_TOPIC, Permission
from rocketd.acl.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, query_content, signed_content

STRICT_ADMIN_CODES = frozenset((26, 33, 50, 51, 52, 53, 54, 222, 306, 309, 314, 316, 323, 329))
"""Codes that require an admin in strict mode:

- reading the settings,
- reading a message by its place in the log, which does not reveal its topic,
- reading and changing accounts,
- resetting and cloning offsets, consuming or checking messages again, deleting.
"""

_QUERY_MESSAGE = 12
_HOSTS_LIMIT = 4096


class AccessRules:
    """Accounts and white addresses. ``strict`` requires an admin where Apache lets every account administer."""

    def __init__(
        self, accounts: Iterable[Account] = (), white: Iterable[AddressRule] = (), *, strict: bool = False
    ) -> None:
        self.accounts = {account.access_key: account for account in accounts}
        self._white = tuple(white)
        self._admin_codes = ADMIN_CODES | OWN_ADMIN_CODES | (STRICT_ADMIN_CODES if strict else frozenset())
        self._white_hosts: dict[str, bool] = {}

    def is_white(self, host: str) -> bool:
        """Return whether a peer's host is a global white address."""
        known = self._white_hosts.get(host)
        if known is None:
            plain = canonical(host)
            known = any(rule(plain) for rule in self._white)
            if len(self._white_hosts) < _HOSTS_LIMIT:
                self._white_hosts[host] = known
        return known

    def signer(self, host: str, fields: Mapping[str, str] | None) -> str | None:
        """Return the access key that signed an accepted request; None if its address needs no signature."""
        account = self.accounts.get((fields or {}).get(ACCESS_KEY, ""))
        if account is None or self.is_white(host):
            return None
        return None if _trusts(account, host) else account.access_key

    def check(
        self,
        code: int,
        host: str,
        fields: Mapping[str, str] | None,
        body: bytes | memoryview | None,
        needed: Callable[[], Mapping[str, Permission]],
    ) -> None:
        """Accept a request, or raise an AccessDeniedError.

        ``fields`` are its header fields. ``needed`` returns the resources it uses, and is called only if necessary.
        """
        if self.is_white(host):
            return
        access_key = fields.get(ACCESS_KEY) if fields else None
        if fields is None or access_key is None:
            raise NoAccessKeyError(host)
        account = self.accounts.get(access_key)
        if account is None:
            raise UnknownAccessKeyError(access_key)
        if _trusts(account, host):
            return
        signature = fields.get(SIGNATURE)
        if not account.secret.has_signed(signed_content(fields, body), signature):
            # Apache's broker refuses all queries by key of Java clients, because they sign one field more than that
            # broker.
            is_query = code == _QUERY_MESSAGE and UNIQUE_KEY_QUERY in fields
            if not is_query or not account.secret.has_signed(query_content(fields, body), signature):
                raise SignatureError(access_key)
        resources = needed()
        if resources.get(TRACE_TOPIC) == Permission.PUB:
            return
        account.check(code, resources, needs_admin=code in self._admin_codes)


def _trusts(account: Account, host: str) -> bool:
    """Return whether a peer's host is a white address of the account."""
    return account.is_white is not nobody and account.is_white(canonical(host))
