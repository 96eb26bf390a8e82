"""From the frames of a busy request code to its typed header, for processors that take whole jobs.

The common form of a request is decoded in one pass, straight into the header. Any other form takes the ordinary way of
`CommandHandler`: decode the command, run the hooks, read the header. Both ways refuse the same requests with the same
answers.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import fields as struct_fields

from rocketd.remoting.headers.client import Header, flag_names, read_header
from rocketd.remoting.serving.answers import fields_hooks
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.wire.codes import JSON_TYPE
from rocketd.remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG
from rocketd.remoting.wire.frame import Frame

HeaderT = TypeVar("HeaderT", bound=Header)

_ONE = b'":"1"'
"""A field with the value "1", of any name."""

_PREFIX_LENGTH = 12
"""Bytes at the beginning of a header that tell its code."""


class DecodedRequest(msgspec.Struct, Generic[HeaderT]):
    """A request with its typed header, and the parts that its answer needs."""

    connection: Connection
    opaque: int
    is_oneway: bool
    serialize_type: int
    version: int
    header: HeaderT


RequestT = TypeVar("RequestT", bound=DecodedRequest[Any])


class _Command(msgspec.Struct, Generic[HeaderT], rename={"header": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    header: HeaderT
    version: int = 0


class _CommandFields(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    code: int
    opaque: int
    flag: int
    fields: dict[str, str]
    version: int = 0


_decode_fields = msgspec.json.Decoder(_CommandFields).decode


class RequestDecoder(Generic[RequestT]):
    """Decodes the requests of some codes and runs the hooks, in one thread."""

    def __init__(
        self, dispatcher: Dispatcher, headers: Mapping[int, type[Header]], request_type: Callable[..., RequestT]
    ) -> None:
        """``headers`` has the header class of each code. They have the same attributes."""
        self._dispatcher = dispatcher
        self._headers = headers
        self._request_type = request_type
        self._decoders = {_prefix(code): _decoder(header_type) for code, header_type in headers.items()}
        types = set(headers.values())
        self._decoder_of_all = _decoder(*types) if len(types) == 1 else None
        self._has_one = _one_as_flag(list(headers.values()))
        self._hooks: tuple[Any, ...] | None = None
        self._checks: list[Callable[..., None]] | None = None

    def refresh(self) -> None:
        """Look at the dispatcher's hooks again, before each group of jobs."""
        hooks = self._dispatcher.answers.hooks
        if hooks is not self._hooks:
            self._hooks = hooks
            self._checks = fields_hooks(hooks)

    def decode(self, connection: Connection, frame: Frame) -> RequestT | None:
        """Return a request that every hook has passed.

        Return None for a refused request, which is answered here, and for a response. Raises FrameError if the header
        is not a command.
        """
        serialize_type, header, body = frame
        command = None
        checks = self._checks
        if serialize_type == JSON_TYPE and checks is not None:
            try:
                if checks:
                    command = self._decode_checked(connection, header, body)
                else:
                    decode = self._decoders.get(header[:_PREFIX_LENGTH], self._decoder_of_all)
                    command = decode(header) if decode is not None else None
            except Exception:  # the ordinary way fails as well, and answers the request
                pass
        if (
            command is None
            or command.flag & RESPONSE_FLAG
            or command.code not in self._headers
            or (self._has_one is not None and self._has_one(command.header, header))
        ):
            return self._decode_ordinarily(connection, frame)
        oneway = command.flag & ONEWAY_FLAG != 0
        return self._request_type(connection, command.opaque, oneway, serialize_type, command.version, command.header)

    def _decode_checked(self, connection: Connection, header: bytes, body: bytes) -> _Command[Any] | None:
        """Decode the fields first, for the hooks. Return None for a response. Raises KeyError for another code."""
        command = _decode_fields(header)
        header_type = self._headers[command.code]
        if command.flag & RESPONSE_FLAG:
            return None
        for check in self._checks or ():
            check(connection.address, command.code, command.fields, body)
        fields = msgspec.convert(command.fields, header_type, strict=False)
        return _Command(command.code, command.opaque, command.flag, fields, command.version)

    def _decode_ordinarily(self, connection: Connection, frame: Frame) -> RequestT | None:
        dispatcher = self._dispatcher
        command = dispatcher.answers.decode_request(connection, frame, self._headers)
        if command is None:
            return None
        try:
            dispatcher.answers.run_hooks(connection, command)
            header = read_header(self._headers[command.code], command)
        except Exception as error:
            if parts := dispatcher.answers.fail(connection, command, error):
                connection.write(parts)
            return None
        return self._request_type(
            connection, command.opaque, command.is_oneway, command.serialize_type, command.version, header
        )


def _prefix(code: int) -> bytes:
    """Return the first bytes of the headers that Java and Go write for a code."""
    return f'{{"code":{code},"'.encode()[:_PREFIX_LENGTH]


def _decoder(header_type: type[Header]) -> Callable[[bytes], _Command[Any]]:
    return msgspec.json.Decoder(_Command[header_type], strict=False).decode  # type: ignore[valid-type]


def _one_as_flag(header_types: Sequence[type[Header]]) -> Callable[[Header, bytes], bool] | None:
    """Return a test for flags that are "1", None if the headers have no flags.

    The C++ client writes such flags. msgspec reads "1" as true, but Java only "true": a batch of the C++ client is
    stored as one message.
    """
    attributes = [field.name for field in struct_fields(header_types[0]) if field.type is bool]
    if not attributes:
        return None
    flags = attrgetter(*attributes, attributes[0])  # a tuple even if there is one flag
    ones = [f'"{name}":"1"'.encode() for header_type in header_types for name in flag_names(header_type)]
    return lambda fields, header: True in flags(fields) and _ONE in header and any(one in header for one in ones)
