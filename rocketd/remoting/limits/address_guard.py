"""Requests accepted from some addresses only: administrative writes, and registrations of brokers.

Apache's servers accept them from any address. The codes are declared once, for name server and broker.
`Dispatcher.guard` wraps only the processors of these codes, so other requests are not slowed down.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.networks import network_list
from rocketd.remoting import problems
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, request_name
from rocketd.remoting.wire.command import RemotingCommand

ADMIN_WRITES = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.GET_ADMIN_CHANGES,
    )
)
"""Requests of administrators that change or delete data, at a broker or a name server, and the one for the audit."""

REGISTRATIONS = frozenset((RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION))
"""Requests of brokers to a name server. The last one counts as a heartbeat."""

Refusal = Callable[[str, str, str], RequestError]


class AddressGuard:
    """Refuses requests of all hosts outside a list. Any thread.

    - ``counter`` is the name of the count of refused requests, ``setting`` that of the list.
    - ``allowed`` returns the current text of the list.
    - ``refusal`` creates the error from request, host and list.
    """

    _log = Logger()

    def __init__(
        self,
        counter: str,
        setting: str,
        allowed: Callable[[], str],
        refusal: Refusal,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        self.counter = counter
        self._setting = setting
        self.refused = 0
        """Number of requests refused so far."""
        self._allowed = allowed
        self._refusal = refusal
        self._lines = ThrottledLog(self._log, LogThrottle(seconds))
        self._lock = Lock()

    def before(self, processor: object) -> IRequestProcessor:
        """Return a processor that passes requests of allowed hosts to another one."""
        return _GuardedProcessor(self, IRequestProcessor(processor))

    def check(self, address: str, code: int) -> None:
        """Accept a request of a peer (``host:port``), or raise RequestError."""
        host = address.rpartition(":")[0]
        allowed = self._allowed()
        if network_list(allowed).allows(host):
            return
        with self._lock:
            self.refused += 1
        request = request_name(code)
        self._lines.warn(
            "refused",
            "{address}: request {request} is refused: the address is not in {setting} = {allowed}",
            address=address,
            request=request,
            setting=self._setting,
            allowed=allowed,
        )
        raise self._refusal(request, host, allowed)


def admin_guard(allowed: Callable[[], str], seconds: Callable[[], float] = monotonic) -> AddressGuard:
    """Return the guard of administrative writes. ``allowed`` returns the value of ``adminWithoutAcl``."""

    def refusal(request: str, host: str, allowed: str) -> RequestError:
        return problems.ADMIN_ADDRESS_REFUSED.error(request=request, host=host, allowed=allowed)

    return AddressGuard("adminWritesRefused", "adminWithoutAcl", allowed, refusal, seconds)


def registration_guard(allowed: Callable[[], str], seconds: Callable[[], float] = monotonic) -> AddressGuard:
    """Return the guard of registrations. ``allowed`` returns the value of ``brokerAllowedAddresses``."""

    def refusal(request: str, host: str, allowed: str) -> RequestError:
        return problems.BROKER_ADDRESS_REFUSED.error(request=request, host=host, allowed=allowed)

    return AddressGuard("registrationsRefused", "brokerAllowedAddresses", allowed, refusal, seconds)


@implementer(IRequestProcessor)
class _GuardedProcessor:
    """A processor behind a guard."""

    def __init__(self, guard: AddressGuard, processor: IRequestProcessor) -> None:
        self._guard = guard
        self._processor = processor

    def process(
        self, request: RemotingCommand, context: IRequestContext
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """Check the address of a request, then handle it."""
        self._guard.check(context.connection.address, request.code)
        return self._processor.process(request, context)
