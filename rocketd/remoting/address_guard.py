"""Requests that are taken only from some addresses: administrative writes, and registrations of brokers.

No counterpart in Apache, whose servers take them from everybody. The codes are declared here once, for name server and
broker; `Dispatcher.guard` puts a guard before the processors of its codes, so that other requests pay nothing for it.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.common.networks import network_list
from rocketd.remoting import problems
from rocketd.remoting.codes import RequestCode, request_name
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IRequestProcessor

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
    )
)
"""Requests of administrators that change or delete something, at a broker or a name server."""

REGISTRATIONS = frozenset((RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION))
"""Requests of brokers to a name server. The last one counts as a sign of life."""

Refusal = Callable[[str, str, str], RequestError]


class AddressGuard:
    """Refuses requests of all hosts that are not in a list. Any thread.

    ``counter`` names the figure of refused requests, ``setting`` the list. ``allowed`` gives the text of the list that is in
    effect, ``refusal`` makes what others are told of the request, the host and the list.
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
        """Requests that were refused so far."""
        self._allowed = allowed
        self._refusal = refusal
        self._lines = ThrottledLog(self._log, LogThrottle(seconds))
        self._lock = Lock()

    def before(self, processor: Any) -> IRequestProcessor:
        """Return a processor that lets requests of allowed hosts through to another one."""
        return _GuardedProcessor(self, IRequestProcessor(processor))

    def check(self, address: str, code: int) -> None:
        """Let a request of a peer (``host:port``) pass, or raise RequestError."""
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
    """Make the guard of administrative writes. ``allowed`` gives the value of ``adminWithoutAcl``."""

    def refusal(request: str, host: str, allowed: str) -> RequestError:
        return problems.ADMIN_ADDRESS_REFUSED.error(request=request, host=host, allowed=allowed)

    return AddressGuard("adminWritesRefused", "adminWithoutAcl", allowed, refusal, seconds)


def registration_guard(allowed: Callable[[], str], seconds: Callable[[], float] = monotonic) -> AddressGuard:
    """Make the guard of registrations. ``allowed`` gives the value of ``brokerAllowedAddresses``."""

    def refusal(request: str, host: str, allowed: str) -> RequestError:
        return problems.BROKER_ADDRESS_REFUSED.error(request=request, host=host, allowed=allowed)

    return AddressGuard("registrationsRefused", "brokerAllowedAddresses", allowed, refusal, seconds)


@implementer(IRequestProcessor)
class _GuardedProcessor:
    """A processor behind a guard."""

    def __init__(self, guard: AddressGuard, processor: IRequestProcessor) -> None:
        self._guard = guard
        self._processor: Any = processor

    def process(self, request: RemotingCommand, context: Any) -> Any:
        """Check where a request comes from, then handle it."""
        self._guard.check(context.connection.address, request.code)
        return self._processor.process(request, context)
