"""Errors of access control.

Counterpart: `AclException` (Apache). The errors have its texts, because clients and people search for them.
"""


class AclError(Exception):
    """An invalid account, or an impossible change. The text is for the requester."""


class AclFileError(AclError):
    """A file of accounts is unusable. The text is one line for the operator, with the file and the place in it.

    It never contains a secret.
    """


class AccessDeniedError(AclError):
    """A request is refused. The text is Apache's. Subclasses have the reason."""


class NoAccessKeyError(AccessDeniedError):
    """The request names no account, but its address requires one."""

    def __init__(self, host: str) -> None:
        super().__init__("No accessKey is configured")
        self.host = host


class UnknownAccessKeyError(AccessDeniedError):
    """The request names an unknown account."""

    def __init__(self, access_key: str) -> None:
        super().__init__(f"No acl config for {access_key}")
        self.access_key = access_key


class SignatureError(AccessDeniedError):
    """The request is not signed with the secret of its account."""

    def __init__(self, access_key: str) -> None:
        super().__init__(f"Check signature failed for accessKey={access_key}")
        self.access_key = access_key


class NotAdminError(AccessDeniedError):
    """The request requires an admin account."""

    def __init__(self, code: int, access_key: str) -> None:
        super().__init__(f"Need admin permission for request code={code}, but accessKey={access_key} is not")
        self.code = code
        self.access_key = access_key


class NoPermissionError(AccessDeniedError):
    """The account lacks permission for the topic or group. Rights have the form used in files."""

    def __init__(self, resource: str, access_key: str, needed: str, owned: str) -> None:
        super().__init__(f"No default permission for {resource}")
        self.resource = resource
        self.access_key = access_key
        self.needed = needed
        self.owned = owned
