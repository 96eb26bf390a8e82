"""Credentials from a file: that of mqadmin, ``conf/tools.yml``. Clients without such a file need no YAML library."""

import yaml

from rocketd.acl.credentials import Credentials
from rocketd.acl.errors import AclFileError
from rocketd.acl.yaml_text import TextLoader, place_of


def read_credentials(path: str) -> Credentials:
    """Read ``accessKey``, ``secretKey`` and the optional ``securityToken`` of a YAML file.

    Raises AclFileError if it cannot be read or lacks one of the first two.
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
        raise AclFileError(f"{path}: accessKey and secretKey must both be present, each a text")
    token = fields.get("securityToken")
    return Credentials(access_key, secret_key, token if isinstance(token, str) else None)
