"""Errors of servers that do not know a request, with the kind of server that would."""

import re
from typing import Final

from rocketd.client.errors import BrokerError, RocketMQError
from rocketd.remoting.wire.codes import RequestCode, ResponseCode

_REMARK: Final = re.compile(r"request type (\d+) not supported")
_FIRST_OF_OURS: Final = 30000
_OF_5: Final = (RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)


def reason_of(error: RocketMQError) -> str:
    """Return the text of an error. If a server does not know a request, it tells which servers do."""
    found = _REMARK.search(error.remark or "") if isinstance(error, BrokerError) else None
    if found is None or error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return str(error)
    code = int(found[1])
    if code >= _FIRST_OF_OURS:
        servers = "rocketd"
    else:
        servers = "RocketMQ 5 and of rocketd" if code in _OF_5 else "RocketMQ 4.9 and of rocketd"
    known = code in RequestCode.__members__.values()
    name = f"{RequestCode(code).name} ({code})" if known else str(code)
    text = f"{error.broker} does not know the request {name}; servers of {servers} do"
    return "; ".join([text, *map(reason_of, error.others)])
