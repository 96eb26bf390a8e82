"""Headers of the requests that read and change accounts (50 to 53).

Counterpart: `CreateAccessConfigRequestHeader` and related classes (Apache). The first one holds a secret: never log it.
"""

from rocketd.remoting.headers.client import Header


class CreateAccessConfigRequestHeader(Header):
    """UPDATE_AND_CREATE_ACL_CONFIG (50). Permissions are entries ``name=PERM`` separated by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(Header):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str


class GetBrokerAclConfigResponseHeader(Header):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO (52). ``version`` is a DataVersion in JSON, the other one has it for each
    file.
    """

    version: str
    all_acl_file_version: str | None
    broker_name: str
    broker_addr: str
    cluster_name: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53). Addresses are separated by commas. The default path is the default file."""

    global_white_addrs: str
    acl_file_full_path: str | None = None
