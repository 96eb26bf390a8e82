"""What a client signs its requests with.

Answers to Apache's SessionCredentials and AclClientRPCHook, and reads the file that mqadmin reads, ``conf/tools.yml``.
"""

from collections.abc import Mapping

import yaml

from rocketd.acl.errors import AclFileError
from rocketd.acl.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Secret, signed_content
from rocketd.acl.yaml_text import TextLoader, place_of


class Credentials:
    """An account's name and secret. The secret is not shown when this is printed."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self.access_key = access_key
        self.security_token = security_token
        self._secret = Secret(secret_key.encode("utf-8", "replace"))

    def sign(self, fields: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        """Return the fields of a request with those of its signature."""
        signed = {**(fields or {}), ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            signed[SECURITY_TOKEN] = self.security_token
        signed[SIGNATURE] = self._secret.sign(signed_content(signed, body)).decode()
        return signed


def read_credentials(path: str) -> Credentials:
    """Read ``accessKey``, ``secretKey`` and perhaps ``securityToken`` of a YAML file.

    Raises AclFileError when it cannot be read or lacks one of the first two.
    """
    try:
        with open(path, "rb") as file:
            content = yaml.load(file, TextLoader)
    except OSError as error:
        raise AclFileError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise AclFileError(f"{path}: {place_of(error)}") from error
    fields = content if isinstance(content, dict) else {}
    access_key, secret_key = fields.get("accessKey"), fields.get("secretKey")
    if not isinstance(access_key, str) or not isinstance(secret_key, str):
        raise AclFileError(f"{path}: accessKey and secretKey must both be there, each a text")
    token = fields.get("securityToken")
    return Credentials(access_key, secret_key, token if isinstance(token, str) else None)
