"""What goes wrong in access control.

Answers to Apache's AclException, whose texts these errors carry: clients and people search for them.
"""


class AclError(Exception):
    """Something that no account may be, or a change that cannot be made; the text is for whoever asked for it."""


class AclFileError(AclError):
    """A file of accounts cannot be used; the text is one line for the operator, with the file and the place in it.

    It never holds a secret.
    """


class AccessDeniedError(AclError):
    """A request is refused; the text is Apache's. Subclasses say what is behind it."""


class NoAccessKeyError(AccessDeniedError):
    """The request names no account, and its address needs one."""

    def __init__(self, host: str) -> None:
        super().__init__("No accessKey is configured")
        self.host = host


class UnknownAccessKeyError(AccessDeniedError):
    """The request names an account that no file has."""

    def __init__(self, access_key: str) -> None:
        super().__init__(f"No acl config for {access_key}")
        self.access_key = access_key


class SignatureError(AccessDeniedError):
    """The request is not signed with the secret of the account it names."""

    def __init__(self, access_key: str) -> None:
        super().__init__(f"Check signature failed for accessKey={access_key}")
        self.access_key = access_key


class NotAdminError(AccessDeniedError):
    """Only an admin account may ask for this."""

    def __init__(self, code: int, access_key: str) -> None:
        super().__init__(f"Need admin permission for request code={code}, but accessKey={access_key} is not")
        self.code = code
        self.access_key = access_key


class NoPermissionError(AccessDeniedError):
    """The account may not do this with that topic or group; rights are written as files have them."""

    def __init__(self, resource: str, access_key: str, needed: str, owned: str) -> None:
        super().__init__(f"No default permission for {resource}")
        self.resource = resource
        self.access_key = access_key
        self.needed = needed
        self.owned = owned
