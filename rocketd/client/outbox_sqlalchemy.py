"""An outbox in a database of SQLAlchemy: messages are stored in the application's transaction, and a relay sends them.

A message is sent if and only if the transaction commits. It is the counterpart of `once_sqlalchemy` at the sending side. It
needs ``rocketd[sqlalchemy]``.

Order: messages of one key are sent one after another, in the order of their ids, to one queue. A message that cannot be
sent blocks the later ones of its key. The ids of transactions at the same time have no particular order: a message that is
committed late can have a lower id than one that is sent already.

Relays: any number of them may run side by side. A relay takes the first message of a key by a lease, together with further
ones of the key. While a lease is valid, no other relay sends messages of the key, not even one with a lower id that is
committed meanwhile. If two relays take messages of a key in the same moment, they give them back: each looks for leases of
others after its own are committed. The transactions of a relay are short: none is open during a send. After a crash the
leases expire.

Sending is at least once: a relay that dies between a send and its delete, or that is halted for longer than its lease,
sends a message twice. Each message has a property with a unique id, by which consumers can skip the second one.

A message whose flush or replication took too long counts as not sent (FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT), and is sent
again. SLAVE_NOT_AVAILABLE counts as sent: the broker works without a slave, and may do so for long.
"""

import threading
from collections.abc import Callable, Sequence
from functools import cache
from time import time
from typing import Any, Final, Generic, NamedTuple
from uuid import uuid4

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session
from twisted.logger import Logger

from rocketd.client.errors import BrokerError, ClientStateError, IllegalOptionError, RocketMQError, UsageError
from rocketd.client.faces.push import ProducerFace
from rocketd.client.messages.codec import BYTES, CONTENT_TYPE, Codec, content_type_of
from rocketd.client.messages.message import Message, SendStatus, T, check_is_message
from rocketd.client.producer.outgoing import encode_body
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.sync import Producer

OUTBOX_ID: Final = "OUTBOX_ID"
"""The property with the id of a message in an outbox. A message sent twice has the same id."""

KEY_LENGTH: Final = 255
ERROR_LENGTH: Final = 500
FIRST_PAUSE_SECONDS: Final = 1.0
"""Pause after a message could not be sent. It doubles each time, up to the relay's ``max_pause``."""

MAX_OUTAGE_PAUSE_SECONDS: Final = 30.0
"""Longest pause after a failure that is not the message's: no broker can be reached."""

_NOT_SECURED: Final = (SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT)
_NOT_SECURED_TEXT: Final = "the broker may still lose the message, so it is sent again"
_SHORT_PAUSE_SECONDS: Final = 0.05
_BODY_LIMIT: Final = 2**31 - 1


@cache
def outbox_table(name: str) -> Table:
    """Return the table of an outbox, for migrations by the application."""
    identity = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers only this type by itself
    return Table(
        name,
        MetaData(),
        Column("id", identity, primary_key=True, autoincrement=True),
        Column("key", String(KEY_LENGTH)),
        Column("topic", String(255), nullable=False),
        Column("message", LargeBinary(2**32 - 1), nullable=False),
        Column("added_at", Double(), nullable=False),
        Column("next_at", Double(), nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", String(ERROR_LENGTH)),
        Column("lease", String(32)),
        Column("lease_until", Double(), nullable=False),
        Index(f"{name}_key", "key", "id"),
        Index(f"{name}_lease", "lease"),
    )


class SqlAlchemyOutbox(Generic[T]):
    """Adds messages to ``table``, in the transaction of ``bind``: a Session or a Connection.

    With an Engine, each ``add`` needs ``within``. ``codec`` encodes bodies. The methods wait for the database.
    """

    def __init__(
        self,
        bind: Engine | Connection | Session,
        *,
        table: str = "rocketd_outbox",
        codec: Codec[T] = BYTES,  # type: ignore[assignment]
        now: Callable[[], float] = time,
    ) -> None:
        self.table = outbox_table(table)
        self._bind = bind
        self._codec = codec
        self._now = now

    def add(self, message: Message[T], *, key: str | None = None, within: Connection | Session | None = None) -> str:
        """Add a message to the transaction, and return its OUTBOX_ID. Messages of one ``key`` are sent in order.

        Raises:

        - IllegalMessageError, IllegalTopicError: the message is invalid.
        - UsageError: there is no transaction, or the key is invalid.
        - SQLAlchemyError: the database refuses.
        """
        where = self._bind if within is None else within
        if isinstance(where, Engine):
            raise UsageError("an engine has no transaction: give within= your session or connection")
        if key is not None and not (isinstance(key, str) and 0 < len(key) <= KEY_LENGTH):
            raise UsageError(f"key={key!r}: accepted is a text of 1 to {KEY_LENGTH} characters")
        check_is_message(message)
        message.check()
        body, outbox_id = encode_body(message, self._codec, _BODY_LIMIT), uuid4().hex
        content_type = content_type_of(self._codec)
        properties = {**({} if content_type is None else {CONTENT_TYPE: content_type}), **message.properties}
        properties[OUTBOX_ID] = outbox_id
        stored = msgspec.structs.replace(message, body=body, keys=list(message.keys), properties=properties)
        now = self._now()
        values = {
            "key": key,
            "topic": message.topic,
            "message": msgspec.msgpack.encode(stored),
            "added_at": now,
            "next_at": now,
            "attempts": 0,
            "lease_until": 0.0,
        }
        where.execute(insert(self.table).values(values))
        return outbox_id

    def create_table(self) -> None:
        """Create the table if it is missing. Raises SQLAlchemyError."""
        bind = self._bind.get_bind() if isinstance(self._bind, Session) else self._bind
        try:
            self.table.create(bind, checkfirst=True)
        except DBAPIError:
            if not inspect(bind).has_table(self.table.name):  # otherwise another process was faster
                raise


class _Row(NamedTuple):
    id: int
    key: str | None
    topic: str
    message: bytes
    attempts: int


class SqlAlchemyRelay:
    """Sends the messages of an outbox by a producer of ``rocketd.client.sync``. The producer is open, without a codec.

    - ``batch``: maximum number of messages of one pass.
    - ``lease``: time for which taken messages belong to this relay. It is more than the producer's ``send_timeout``.
    - ``interval``: pause after a pass without messages.
    - ``max_pause``: longest pause before a message is tried again.
    - ``skip_locked``: whether to use SKIP LOCKED, if SQLAlchemy has it for the database. MySQL has it from 8.0 on, MariaDB
      from 10.6 on, Oracle does not combine it with a limit. The leases alone are safe, too.

    Raises UsageError for a producer of another face or with a codec, and IllegalOptionError for other invalid options.
    """

    _log = Logger()

    def __init__(
        self,
        engine: Engine,
        producer: Producer[bytes],
        *,
        table: str = "rocketd_outbox",
        batch: int = 100,
        lease: Duration = 60.0,
        interval: Duration = 1.0,
        max_pause: Duration = 300.0,
        skip_locked: bool = True,
        now: Callable[[], float] = time,
    ) -> None:
        if isinstance(producer, ProducerFace) and not isinstance(producer, Producer):
            raise UsageError(
                f"{type(producer).__module__}.{type(producer).__name__} does not block: a relay needs a producer of "
                "rocketd.client.sync"
            )
        if producer.codec is not BYTES:
            raise UsageError("the producer of a relay has no codec: give the codec to the outbox")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise IllegalOptionError(f"batch={batch!r}: accepted is a whole number from 1 on")
        self.table = outbox_table(table)
        self._engine = engine
        self._producer = producer
        self._batch = batch
        self._lease = milliseconds("lease", lease) / 1000
        self._send_timeout = milliseconds("send_timeout", producer.send_timeout) / 1000
        if self._lease <= self._send_timeout:
            raise IllegalOptionError(f"lease={lease!r}: accepted is a time above the producer's send_timeout")
        self._interval = milliseconds("interval", interval) / 1000
        self._max_pause = milliseconds("max_pause", max_pause) / 1000
        self._skip_locked = skip_locked
        self._now = now
        self._stopping = threading.Event()
        self._has_table = False

    def run(self) -> None:
        """Send messages until ``stop``. It blocks; run it in a thread or a process of its own.

        Failures of the database are logged, and tried again after ``interval``. Raises ClientStateError if the producer is
        stopped.
        """
        while not self._stopping.is_set():
            try:
                pause = _SHORT_PAUSE_SECONDS if self.run_once() else self._interval
            except SQLAlchemyError:
                self._log.failure("the relay of table {table} tries again", table=self.table.name)
                pause = self._interval
            self._stopping.wait(pause)

    def stop(self) -> None:
        """End ``run`` after the message under way. Any thread, and signal handlers."""
        self._stopping.set()

    def run_once(self) -> int:
        """Send the messages that are due, one pass, and return how many were sent.

        A message that cannot be sent is postponed, whatever the error. Raises:

        - ClientStateError: the producer is stopped, or was not started.
        - SQLAlchemyError: the database refuses.
        """
        if not self._has_table:
            SqlAlchemyOutbox(self._engine, table=self.table.name).create_table()
            self._has_table = True
        token, until = uuid4().hex, self._now() + self._lease
        rows = self._take(token, until)
        sent = 0
        blocked: set[str | None] = set()
        away: set[str] = set()
        try:
            for row in rows:
                if self._stopping.is_set() or self._now() + self._send_timeout >= until:
                    break
                if row.topic in away or (row.key is not None and row.key in blocked):
                    continue
                try:
                    result = self._producer.send(msgspec.msgpack.decode(row.message, type=Message[bytes]), key=row.key)
                except ClientStateError:
                    raise  # the producer is stopped: no message can be sent
                except Exception as error:  # a hook of the application may raise anything
                    if not isinstance(error, RocketMQError | msgspec.MsgspecError):
                        self._log.failure("message {id} of table {table}", id=row.id, table=self.table.name)
                    blocked.add(row.key)
                    longest = self._max_pause
                    if isinstance(error, RocketMQError) and not isinstance(error, UsageError | BrokerError):
                        away.add(row.topic)  # its other messages would only wait for the same timeout
                        longest = min(longest, MAX_OUTAGE_PAUSE_SECONDS)
                    pause = self._postpone(row, token, f"{type(error).__name__}: {error}", longest)
                    if row.topic in away:
                        self._postpone_topic(row.topic, token, pause)
                else:
                    if result.status in _NOT_SECURED:
                        blocked.add(row.key)
                        self._postpone(row, token, f"{result.status.name}: {_NOT_SECURED_TEXT}", self._max_pause)
                        continue
                    self._forget(row, token)
                    sent += 1
        finally:
            self._release(token)
        return sent

    # ------------------------------------------------------------ the database

    def _take(self, token: str, until: float) -> Sequence[_Row]:
        """Lease the first messages of some keys, and further ones of these keys. Return them in order."""
        table, now = self.table, self._now()
        leasing = update(table).values(lease=token, lease_until=until)
        free = table.c.lease_until <= now
        with self._engine.begin() as connection:
            heads = connection.scalars(self._heads(now)).all()
            if not heads:
                return []
            connection.execute(leasing.where(table.c.id.in_(heads), free))
            taken = connection.execute(select(table.c.id, table.c.key).where(table.c.lease == token)).all()
            keys = {key for _, key in taken if key is not None}
            if keys and len(taken) < self._batch:
                more = select(table.c.id).where(table.c.key.in_(keys), free).order_by(table.c.id)
                ids = connection.scalars(more.limit(self._batch - len(taken))).all()
                connection.execute(leasing.where(table.c.id.in_(ids), free))
        # Only a transaction that begins after the commit of the leases surely sees those committed before them.
        with self._engine.begin() as connection:
            if keys:
                others = (table.c.key.in_(keys), table.c.lease != token, table.c.lease_until > now)
                contested = connection.scalars(select(table.c.key).where(*others).distinct()).all()
                if contested:
                    giving_back = update(table).where(table.c.lease == token, table.c.key.in_(contested))
                    connection.execute(giving_back.values(lease=None, lease_until=0.0))
            columns = (table.c.id, table.c.key, table.c.topic, table.c.message, table.c.attempts)
            found = connection.execute(select(*columns).where(table.c.lease == token).order_by(table.c.id)).all()
        return [_Row(*row) for row in found]

    def _heads(self, now: float) -> Select[tuple[int]]:
        """Return the query for the ids of messages that are due and free.

        Of a key it is the first message, if no relay has taken any message of the key.
        """
        table, earlier, other = self.table, self.table.alias(), self.table.alias()
        before = exists().where(earlier.c.key == table.c.key, earlier.c.id < table.c.id)
        leased = exists().where(other.c.key == table.c.key, other.c.lease_until > now)
        first = or_(table.c.key.is_(None), and_(~before, ~leased))
        query = (
            select(table.c.id)
            .where(table.c.lease_until <= now, table.c.next_at <= now, first)
            .order_by(table.c.id)
            .limit(self._batch)
        )
        return query.with_for_update(skip_locked=True, of=table) if self._skip_locked else query

    def _forget(self, row: _Row, token: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(self.table).where(self.table.c.id == row.id, self.table.c.lease == token))

    def _postpone(self, row: _Row, token: str, error: str, longest: float) -> float:
        """Store the error and the time of the next try. Return the pause in seconds."""
        pause: float = min(FIRST_PAUSE_SECONDS * 2 ** min(row.attempts, 30), longest)
        self._log.warn(
            "message {id} of table {table} to {topic} is tried again in {pause:g} s: {error}",
            id=row.id,
            table=self.table.name,
            topic=row.topic,
            pause=pause,
            error=error,
        )
        values: dict[str, Any] = {"attempts": row.attempts + 1, "next_at": self._now() + pause}
        values["error"] = error[:ERROR_LENGTH]
        with self._engine.begin() as connection:
            mine = (self.table.c.id == row.id, self.table.c.lease == token)
            connection.execute(update(self.table).where(*mine).values(values))
        return pause

    def _postpone_topic(self, topic: str, token: str, pause: float) -> None:
        """Postpone the messages of ``topic`` that no other relay has, so that those of other topics are taken next."""
        table, now = self.table, self._now()
        next_at = now + pause
        mine_or_free = or_(table.c.lease == token, table.c.lease_until <= now)
        waiting = update(table).where(table.c.topic == topic, table.c.next_at < next_at, mine_or_free)
        with self._engine.begin() as connection:
            connection.execute(waiting.values(next_at=next_at))

    def _release(self, token: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(
                update(self.table).where(self.table.c.lease == token).values(lease=None, lease_until=0.0)
            )

    def pending(self) -> int:
        """Return the number of messages in the outbox, for metrics. Raises SQLAlchemyError."""
        with self._engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(self.table)) or 0
