"""Every refusal with an explained cause, declared once.

This table gives the response's code and remark, the log line, and the section of its id in docs/errors.md. A remark
begins with Apache's text, because clients and people search for it. The cause with the measured values and the next
step follow.
"""

from dataclasses import dataclass

from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

CATALOGUE: "dict[str, Problem]" = {}
"""All problems by id."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason to refuse a request.

    - ``remark`` is Apache's text.
    - ``cause`` is the reason with measured values and limit. Both are format strings.
    - ``setting`` is the configuration key of the limit, if any.
    - ``advice`` is the next step.
    """

    id: str
    code: ResponseCode
    remark: str
    cause: str
    advice: str
    setting: str | None = None

    def __post_init__(self) -> None:
        if self.id in CATALOGUE:
            raise ValueError(f"problem {self.id} is declared twice")
        CATALOGUE[self.id] = self

    def error(self, **values: object) -> RequestError:
        """Return the error with the measured values filled in."""
        return RequestError(self.code, self.text(**values), self.id)

    def text(self, **values: object) -> str:
        """Return the remark: Apache's text, then cause and advice."""
        limit = f" (setting {self.setting})" if self.setting else ""
        return f"{self.remark}; cause: {self.cause}{limit}; {self.advice} [{self.id}]".format(**values)


_CODES = frozenset(ResponseCode)


def reason_of(refusal: RequestError | RemotingCommand) -> str:
    """Return a constant that names a refusal in counts: the id of its problem, or the name of its code.

    A name has the form of an id: ``no-permission``.
    """
    if isinstance(refusal, RequestError) and refusal.problem:
        return refusal.problem
    code = refusal.code
    return ResponseCode(code).name.lower().replace("_", "-") if code in _CODES else f"code {code}"


CODE_NOT_SUPPORTED = Problem(
    id="code-not-supported",
    code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    remark=" request type {code} not supported",
    cause="no processor is registered for this request code",
    advice="install a processor plugin for it, or ask a server of the right kind (name server or broker)",
)

PROCESSOR_FAILED = Problem(
    id="processor-failed",
    code=ResponseCode.SYSTEM_ERROR,
    remark="request type {code} failed",
    cause="its processor raised an error that it should have handled",
    advice="the log of the server has the error; if the processor is rocketd's own, please report it",
)

HEADER_REFUSED = Problem(
    id="header-refused",
    code=ResponseCode.SYSTEM_ERROR,
    remark="request type {code} failed",
    cause="its {why}",
    advice="send fewer fields, at most 1,000, and long headers in plain JSON or in binary form",
)

ANSWER_TOO_LONG = Problem(
    id="answer-too-long",
    code=ResponseCode.SYSTEM_ERROR,
    remark="request type {code} failed",
    cause="its answer has {size} bytes, more than the {limit} of a frame",
    advice="ask for fewer entries, or for one topic or group; or raise the limit at this server and at its clients",
    setting="com.rocketmq.remoting.frameMaxLength",
)

POOL_FULL = Problem(
    id="pool-full",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]system busy, start flow control for a while",
    cause="the {pool} pool holds {queued} of at most {limit} requests and {queued_bytes} of {limit_bytes} bytes",
    advice="send slower or retry after 100 ms",
    setting="sendThreadPoolQueueCapacity and its like",
)

ADMIN_ADDRESS_REFUSED = Problem(
    id="admin-address-refused",
    code=ResponseCode.NO_PERMISSION,
    remark="request {request} from {host} is not permitted",
    cause="without accounts, administrative writes are accepted only from: {allowed}",
    advice="run the command on a machine of that list, have the operator add {host} to it, or use accounts (aclEnable)",
    setting="adminWithoutAcl",
)

BROKER_ADDRESS_REFUSED = Problem(
    id="broker-address-refused",
    code=ResponseCode.NO_PERMISSION,
    remark="request {request} from {host} is not permitted",
    cause="brokers may register and unregister only from: {allowed}",
    advice="have the operator of the name server add {host} to the list",
    setting="brokerAllowedAddresses",
)
