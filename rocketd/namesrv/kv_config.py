"""The name server's key-value configuration by namespace, kept in a file.

Counterpart: `KVConfigManager` and `KVConfigSerializeWrapper` (Apache), with the same JSON file. The name server itself
reads only the namespace ORDER_TOPIC_CONFIG. Any thread may call any method. A lock guards the table; it is not held
while the file is written. ``revision`` grows with every change.
"""

from threading import Lock

from twisted.logger import Logger

from rocketd.common.logs.throttle import event_log
from rocketd.common.table_writer import TableWriter, Written
from rocketd.remoting.bodies.tables import KVConfig
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.small_file import candidates, replace_file


class KVConfigError(Exception):
    """The file exists, but its content is unreadable."""


class KVConfigManager:
    """The table and its file. A change applies at once. The writer stores it, and repeats until it succeeds."""

    _log = Logger()

    def __init__(self, path: str, file_system: IFileSystem, writer: TableWriter | None = None) -> None:
        """Without a ``writer``, each change is written on the thread that makes it."""
        self.revision = 0
        self._events = event_log(self._log)
        self._saved = (writer or TableWriter()).table(path, self._write)
        self._path = path
        self._file_system = file_system
        self._lock = Lock()
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> bool:
        """Read the file, or its backup if the file is unreadable. Return False, with a log line, if both are missing.

        Raises KVConfigError if one exists but none is readable: the first change would overwrite it.
        """
        with self._lock:
            trouble: Exception | None = None
            try:
                for path, content in candidates(self._file_system, self._path):
                    try:
                        self._table = KVConfig.decode(content).config_table
                    except fastjson.FastJSONError as error:
                        trouble = trouble or error
                        self._log.error("{path} is not a KV configuration: {error}", path=path, error=error)
                        continue
                    self.revision += 1
                    self._log.info("KV configuration read from {path}", path=path)
                    return True
            except OSError as error:
                trouble = trouble or error
            if trouble is not None:
                raise KVConfigError(
                    f"{self._path} and its backup cannot be read: {trouble}; repair it, or move it away to begin empty"
                )
            self._log.info("no KV configuration at {path}, it begins empty", path=self._path)
            return False

    def put(self, namespace: str, key: str, value: str, written: Written | None = None) -> None:
        """Set one value. ``written`` is called when it is on disk, or if that fails."""
        with self._lock:
            before = self._table.setdefault(namespace, {}).get(key)
            self._table[namespace][key] = value
            self._events.info(
                "KV values set",
                "KV {namespace}/{key} is now {value}, was {before}",
                namespace=namespace,
                key=key,
                value=value,
                before=before,
            )
            self.revision += 1
        self._saved.changed(written)

    def delete(self, namespace: str, key: str, written: Written | None = None) -> None:
        """Remove one value. The namespace stays. Does nothing if it is unknown. For ``written`` see ``put``."""
        with self._lock:
            before = self._table.get(namespace, {}).pop(key, None)
            self._events.info(
                "KV values deleted",
                "KV {namespace}/{key} is deleted, was {before}",
                namespace=namespace,
                key=key,
                before=before,
            )
            self.revision += 1
        self._saved.changed(written)

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        with self._lock:
            return self._table.get(namespace, {}).get(key)

    def of_namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of all values of a namespace, None if it never had one."""
        with self._lock:
            table = self._table.get(namespace)
            return None if table is None else dict(table)

    def _write(self) -> None:
        with self._lock:
            tables = {namespace: dict(table) for namespace, table in self._table.items()}
        replace_file(self._file_system, self._path, fastjson.dumps_pretty(KVConfig(tables)))
