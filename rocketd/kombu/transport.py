"""Kombu's transport on RocketMQ: the clients of a connection.

The URL is ``rocketmq://ACCESS_KEY:SECRET_KEY@HOST:PORT/NAMESPACE``; every part may be left out. ``transport_options`` may
have ``cluster``, a list of name servers or a ClientConfig, in place of the URL's parts, and ``queues``, the number of
queues of new topics at each broker.
"""

import os
from dataclasses import replace
from typing import Any, Self
from uuid import uuid4

from kombu import Connection
from kombu.transport import virtual

from rocketd import __version__
from rocketd.client import ClientConfig, Credentials
from rocketd.client.errors import (
    BrokerUnreachableError,
    CommitError,
    ConnectionLostError,
    NoBrokerError,
    NoNameServerError,
    RequestTimeoutError,
    RocketMQError,
    TooManyRequestsError,
    UnreachableError,
)
from rocketd.client.settings.config import config_of
from rocketd.client.sync import Admin, Producer
from rocketd.kombu.channel import RocketMQChannel

PRODUCER_GROUP = "kombu_producer"

OUTAGES = (
    BrokerUnreachableError,
    CommitError,
    ConnectionLostError,
    NoBrokerError,
    NoNameServerError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnreachableError,
)
"""Errors after which Kombu connects again and repeats the call."""


class ConnectionClients:
    """The producer and the administrator of a connection, opened in the process that uses them."""

    def __init__(self, config: ClientConfig) -> None:
        """Open both. Raises RocketMQError if no name server answers."""
        self.config = config
        self._process = os.getpid()
        self.producer = Producer(PRODUCER_GROUP, config)
        self.admin = Admin(config)
        try:
            self.admin.open()
            self.producer.open()
            self.admin.brokers()
        except BaseException:
            self.close()
            raise

    @property
    def of_this_process(self) -> bool:
        """Whether this process has opened them, not its parent."""
        return os.getpid() == self._process

    def close(self) -> None:
        """Close both. In a child of the process that opened them, do nothing."""
        if self.of_this_process:
            self.producer.close()
            self.admin.close()


class RocketMQTransport(virtual.Transport):
    """A connection to a cluster."""

    Channel = RocketMQChannel

    driver_type = "rocketmq"
    driver_name = "rocketd"
    default_port = 9876
    polling_interval = 0.05

    can_parse_url = False
    connection_errors = (*virtual.Transport.connection_errors, *OUTAGES)
    channel_errors = (*virtual.Transport.channel_errors, RocketMQError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors: tuple[type[Exception], ...] = ()

    def __init__(self, client: Connection, **kwargs: object) -> None:
        super().__init__(client, **kwargs)
        self.known_topics: set[str] = set()
        self._clients: ConnectionClients | None = None

    @property
    def clients(self) -> ConnectionClients:
        """The clients, opened at the first use in each process. Raises RocketMQError."""
        if self._clients is None or not self._clients.of_this_process:
            self._clients = ConnectionClients(self._config())
        return self._clients

    def _config(self) -> ClientConfig:
        """Return the config of a new client. Raises IllegalOptionError."""
        client = self.client
        # Two connections of one process may be members of the same group only as two instances.
        instance = f"{os.getpid()}#{uuid4().hex}"
        cluster = client.transport_options.get("cluster")
        if cluster is not None:
            config = config_of(cluster)
            return config if config.instance_name is not None else replace(config, instance_name=instance)
        space = (client.virtual_host or "").strip("/")
        return ClientConfig(
            namesrv=f"{client.hostname}:{client.port or self.default_port}" if client.hostname else "",
            credentials=Credentials(client.userid, client.password or "") if client.userid else None,
            namespace=space,
            tls=bool(client.ssl),
            instance_name=instance,
        )

    def driver_version(self) -> str:
        """Return the version of rocketd."""
        return __version__

    def establish_connection(self) -> Self:
        """Connect. Raises RocketMQError if no name server answers."""
        _ = self.clients
        super().establish_connection()
        return self

    def verify_connection(self, connection: object) -> bool:
        """Whether a name server answers."""
        try:
            self.clients.admin.brokers()
        except RocketMQError:
            return False
        return True

    def close_connection(self, connection: object) -> None:
        """Close all channels and clients."""
        super().close_connection(connection)
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """Parts of a URL without them."""
        return {"hostname": None, "port": self.default_port, "virtual_host": "/", "userid": None, "password": None}
