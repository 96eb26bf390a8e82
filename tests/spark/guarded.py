"""Clusters that require an account, rocketd's also TLS: fixtures for tests of reads and writes."""

import pytest
import trustme

from tests.spark.clusters import APACHE, ROCKETD, start_cluster
from tests.support.broker_settings import ACCOUNTS

ADMIN = {"access_key": "adminKey", "secret_key": "admin-secret"}
READER = {"access_key": "readerKey", "secret_key": "reader-secret"}

_GUARDED = {"aclEnable": "true", "enablePropertyFilter": "false"}


def _accounts(home):
    accounts = home / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    return {"rocketmqHome": str(home)}


@pytest.fixture(scope="session")
def rocketd_guarded(tmp_path_factory):
    """rocketd's servers; the broker asks for an account and for TLS, and has no SQL92 filters."""
    directory = tmp_path_factory.mktemp("guarded")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(str(directory / "key.pem"))
    for part in server.cert_chain_pems:
        part.write_to_path(str(directory / "cert.pem"), append=True)
    tls = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(directory / "cert.pem"),
        "tls.server.keyPath": str(directory / "key.pem"),
    }
    properties = {**_GUARDED, **tls, **_accounts(directory / "home"), "tls.server.mode": "enforcing"}
    options = {**ADMIN, "tls": True, "tls_ca": str(directory / "ca.pem")}
    with start_cluster(ROCKETD, directory, properties, tls, **options) as running:
        yield running


@pytest.fixture(scope="session")
def apache_guarded(tmp_path_factory, apache_cluster):
    """Apache's servers; the broker asks for an account, and has no SQL92 filters."""
    directory = tmp_path_factory.mktemp("guarded")
    with start_cluster(APACHE, directory, {**_GUARDED, **_accounts(directory / "home")}, **ADMIN) as running:
        yield running


@pytest.fixture(params=[ROCKETD, APACHE])
def guarded(request):
    """Either of them, in turn."""
    return request.getfixturevalue(f"{request.param}_guarded")
