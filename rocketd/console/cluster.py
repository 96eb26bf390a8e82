"""The cluster as one user reaches it: a client that signs with the user's secret, and the sign-in of a user."""

from collections.abc import Coroutine
from secrets import token_hex
from typing import Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from rocketd.acl.credentials import Credentials
from rocketd.client import ClientConfig
from rocketd.client.admin import AdminEngine
from rocketd.client.errors import BrokerError, RocketMQError
from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import Message, SendResult
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.settings.config import DEFAULT_NAMESRV, ClientEnvironment
from rocketd.common.event_loop.reactor import IReactor
from rocketd.console.errors import ClusterTimeoutError, LoginError, is_refusal
from rocketd.console.settings import ConsoleConfig
from rocketd.protocol.cluster import MASTER, runtime_info

T = TypeVar("T")

PRODUCER_GROUP: Final = "rocketd-console"
"""The producer group of test messages."""
MAX_KEY_CHARACTERS: Final = 256
"""Longest access key or secret."""


class ConsoleCluster:
    """The client of one user, or of all users without accounts. Reactor thread. ``account`` is the access key."""

    def __init__(self, reactor: IReactor, config: ClientConfig, timeout_seconds: float) -> None:
        self.account = None if config.credentials is None else config.credentials.access_key
        self.client = ClientInstance(config.reactor_on(reactor), config)
        self.admin = AdminEngine(self.client)
        self._reactor = reactor
        self._timeout_seconds = timeout_seconds
        self._producer: ProducerEngine[bytes] | None = None

    def start(self) -> None:
        """Start the client. It connects to nothing yet."""
        self.client.startService()
        Deferred.fromCoroutine(self.admin.start())

    async def stop(self) -> None:
        """Close all connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()
        await self.admin.stop()
        await self.client.stopService()

    async def send(self, message: Message[bytes]) -> SendResult:
        """Send a message, with a producer made by the first call."""
        if self._producer is None:
            self._producer = ProducerEngine(self.client, PRODUCER_GROUP)
            await self._producer.start()
        return await self._producer.send(message)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await deferLater(self._reactor, seconds, lambda: None)

    async def within(self, work: Coroutine[Deferred[object], object, T]) -> T:
        """Return the result of a page's coroutine. Raises ClusterTimeoutError if it takes too long."""
        begun = Deferred.fromCoroutine(work)
        over: list[bool] = []

        def give_up() -> None:
            over.append(True)
            begun.cancel()

        limit = self._reactor.callLater(self._timeout_seconds, give_up)
        try:
            return await begun
        except CancelledError:
            if not over:
                raise
            raise ClusterTimeoutError(
                f"The cluster did not answer within {self._timeout_seconds:g} s (consoleTimeoutMillis)."
            ) from None
        finally:
            if limit.active():
                limit.cancel()


class ClusterDoor:
    """Makes clients for users. ``environment`` replaces this machine in tests."""

    def __init__(self, reactor: IReactor, config: ConsoleConfig, environment: ClientEnvironment | None = None) -> None:
        self._reactor = reactor
        self._config = config
        self._environment = environment

    def make(self, credentials: Credentials | None = None) -> ConsoleCluster:
        """Return a client. It is not started."""
        config = self._config
        client = ClientConfig(
            namesrv=config.namesrv_addr or DEFAULT_NAMESRV,
            credentials=credentials,
            tls="unverified"
            if config.console_cluster_tls == "unverified"
            else config.console_cluster_tls == "verified",
            ca=config.console_cluster_ca,
            environment=self._environment,
        )
        return ConsoleCluster(self._reactor, client, config.console_timeout_millis / 1000)

    async def sign_in(self, access_key: str, secret_key: str) -> ConsoleCluster:
        """Return a started client for an account which each reachable master accepts.

        Raises LoginError if one refuses it, or if one accepts a made-up account or a made-up secret as well: peers at a
        white address need no signature.
        """
        if not access_key or not secret_key or max(len(access_key), len(secret_key)) > MAX_KEY_CHARACTERS:
            raise LoginError("Give the access key and the secret of an account.")
        await self._refuse_open_cluster()
        cluster = self.make(Credentials(access_key, secret_key))
        cluster.start()
        try:
            accepted, refused = await cluster.within(_answers(cluster))
            if refused or not accepted:
                raise LoginError("The brokers refuse this access key and secret.")
            await self._refuse_unsigned(access_key, accepted)
        except BaseException:
            await cluster.stop()
            raise
        return cluster

    async def _refuse_open_cluster(self) -> None:
        """Raise LoginError if a broker accepts an account that cannot exist."""
        accepted, _ = await self._answers_to(Credentials(f"console-{token_hex(16)}", token_hex(16)))
        if accepted:
            raise LoginError(
                f"Sign-in is not possible: broker {accepted[0]} accepts any account from this console's address. Set "
                "aclEnable=true there, and remove the address from its white addresses."
            )

    async def _refuse_unsigned(self, access_key: str, masters: list[str]) -> None:
        """Raise LoginError unless all ``masters`` refuse an account with a made-up secret."""
        accepted, refused = await self._answers_to(Credentials(access_key, token_hex(16)))
        if accepted:
            raise LoginError(
                f"Sign-in is not possible: broker {accepted[0]} accepts this access key with any secret from this "
                "console's address. Remove the address from the whiteRemoteAddress of the account."
            )
        if silent := sorted(set(masters) - set(refused)):
            raise LoginError(f"Broker {silent[0]} does not tell whether it checks the secret. Try again.")

    async def _answers_to(self, credentials: Credentials) -> tuple[list[str], list[str]]:
        """Return what ``_answers`` returns for an account."""
        cluster = self.make(credentials)
        cluster.start()
        try:
            return await cluster.within(_answers(cluster))
        finally:
            await cluster.stop()


async def _answers(cluster: ConsoleCluster) -> tuple[list[str], list[str]]:
    """Return the names of the masters accepting the account, and of those refusing it. All are asked at once.

    Raises RocketMQError if none answers.
    """
    masters = [
        (broker.broker_name, broker.broker_addrs[MASTER])
        for broker in await cluster.admin.brokers()
        if MASTER in broker.broker_addrs
    ]
    verdicts = await all_of(_verdict(cluster, address) for _, address in masters)
    accepted: list[str] = []
    refused: list[str] = []
    failure: RocketMQError | None = None
    for (name, _), verdict in zip(masters, verdicts, strict=True):
        if isinstance(verdict, RocketMQError):
            failure = verdict
        else:
            (accepted if verdict else refused).append(name)
    if failure is not None and not (accepted or refused):
        raise failure
    return accepted, refused


async def _verdict(cluster: ConsoleCluster, address: str) -> bool | RocketMQError:
    """Return whether a broker accepts the account, or why it did not tell.

    One of Apache's answers SYSTEM_ERROR in the first seconds after its start.
    """
    request = runtime_info()
    try:
        request.result(address, await cluster.client.ask(address, request.code, request.header))
    except RocketMQError as error:
        return False if isinstance(error, BrokerError) and is_refusal(error) else error
    return True
