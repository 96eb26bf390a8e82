"""The source of a read: a store's files or a cluster. The data source and the fused jobs share it.

A Source is sent to the tasks by pickle, without connections and open files. Each process opens them when needed.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketd.spark.errors import ClusterError, OptionError
from rocketd.spark.options import ConnectOptions, ReadOptions
from rocketd.spark.planning.follow import FIRST_PATIENCE
from rocketd.spark.ranges import Catalog, OnLoss, QueueRange

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketd.spark.wire.cluster import ClusterClient
    from rocketd.spark.wire.options import ClusterOptions

_WORTH_ASKING: Final = 8192
"""For more messages than this, sampling their size on the broker is worth a request."""


class Source:
    """A catalog and the way to read from it. Not thread-safe."""

    def __init__(self, options: ReadOptions, patience: float | None = None) -> None:
        """`patience` is the time (s) for which the catalog retries an unreachable server.

        Reads follow the options instead.
        """
        self.options = options
        self._patience = min(options.retry_timeout, FIRST_PATIENCE) if patience is None else patience
        self._catalog: Catalog | None = None
        self._cluster: ClusterClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_catalog": None, "_cluster": None}

    def __repr__(self) -> str:
        return f"Source({self.options!r})"

    @property
    def is_store(self) -> bool:
        """Whether files are read, not a cluster."""
        return bool(self.options.store)

    @property
    def catalog(self) -> Catalog:
        """The store or the cluster, opened on first use. Raises StoreFilesError, ClusterError."""
        if self._catalog is None:
            self._catalog = _open(self.options, self._patience)
        return self._catalog

    def size(self, part: QueueRange, *, worth_asking: int = _WORTH_ASKING) -> int | None:
        """Estimate the size of a range in bytes.

        A cluster is asked only for more than `worth_asking` messages; else None.
        """
        if not self.is_store and part.count <= worth_asking:
            return None
        try:
            return self.catalog.bytes_of(part)
        except ClusterError:
            return None  # an estimate is enough, and reading is more patient

    def plan(self) -> list[QueueRange]:
        """Return the ranges of a batch read, sorted, with ends fixed now.

        Raises OptionError, DataLossError, ClusterError.
        """
        from rocketd.spark.planning.batch import planned_ranges

        return planned_ranges(self.catalog, self.options)

    def tasks(self, ranges: Sequence[QueueRange], *, cores: int | None = None) -> list[tuple[QueueRange, ...]]:
        """Cut and group the ranges into tasks; see `rocketd.spark.planning.splits`."""
        from rocketd.spark.planning.splits import cores_here, into_tasks

        options = self.options
        return into_tasks(
            ranges,
            self.size,
            min_partitions=options.min_partitions,
            max_bytes=options.max_bytes_per_partition,
            cores=cores or cores_here(),
        )

    def read(
        self, part: QueueRange, columns: Sequence[str], on_loss: OnLoss | None = None
    ) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of a range in ascending order, in batches with exactly these columns.

        Raises DataLossError if messages of the range are gone. With `on_loss`, each lost range is passed to it and
        reading goes on.
        """
        wanted = tuple(columns)
        if self.options.keys and "keys" not in wanted:
            wanted = (*wanted, "keys")
        plan = self.options.read_plan(wanted)
        if self.options.store:
            from rocketd.spark.store.tree import StoreTree

            assert isinstance(self.catalog, StoreTree)
            batches = self.catalog.read(part, plan, on_loss)
        else:
            from rocketd.spark.wire.cluster import ClusterClient
            from rocketd.spark.wire.read import read_range

            if self._cluster is None:
                self._cluster = ClusterClient(cluster_options(self.options))
            batches = read_range(self._cluster, part, plan, on_loss)
        for batch in batches:
            kept = _with_keys(batch, self.options.keys, len(columns)) if self.options.keys else batch
            if kept.num_rows:
                yield kept

    def close(self) -> None:
        """Close files and connections; the next use opens them again."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


def open_source(options: ReadOptions) -> Source:
    """Return the source named by the options. Opens nothing yet."""
    return Source(options)


def cluster_options(options: ConnectOptions, patience: float | None = None) -> "ClusterOptions":
    """Return the connection options in the form that the blocking client takes.

    `patience` (s) defaults to retryTimeout.

    Raises OptionError, also if the credentials file is unreadable.
    """
    from rocketd.spark.wire.options import ClusterOptions

    access_key, secret_key, token = options.access_key, options.secret_key, options.security_token
    if options.credentials_file:
        access_key, secret_key, token = _credentials(options.credentials_file)
    return ClusterOptions(
        options.namesrv,
        access_key=access_key,
        secret_key=secret_key,
        security_token=token,
        tls=options.tls,
        tls_ca=options.tls_ca_file,
        tls_cert=options.tls_cert_file,
        tls_key=options.tls_key_file,
        tls_verify=options.tls_verify,
        timeout=options.timeout,
        patience=options.retry_timeout if patience is None else patience,
    )


def _credentials(path: str) -> tuple[str, str, str]:
    import yaml

    try:
        with open(path, "rb") as file:
            content = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no YAML"
        raise OptionError(f"option credentialsFile: {path}: {reason}") from None
    fields = content if isinstance(content, dict) else {}
    access_key, secret_key, token = (fields.get(name) for name in ("accessKey", "secretKey", "securityToken"))
    if not isinstance(access_key, str) or not isinstance(secret_key, str):
        raise OptionError(f"option credentialsFile: {path}: accessKey and secretKey must both be there, each a text")
    return access_key, secret_key, token if isinstance(token, str) else ""


def _open(options: ReadOptions, patience: float) -> Catalog:
    if options.store:
        from rocketd.spark.store.tree import StoreTree

        return StoreTree(options.store, options.broker_name, options.commit_log)
    from rocketd.spark.wire.catalog import BrokerCatalog

    catalog: Catalog = BrokerCatalog(cluster_options(options, patience))
    if options.broker_name:
        from rocketd.spark.planning.one_broker import OneBroker

        return OneBroker(catalog, options.broker_name)
    return catalog


def _with_keys(batch: "pa.RecordBatch", keys: Sequence[str], columns: int) -> "pa.RecordBatch":
    """Return the rows that have one of the keys, with the first `columns` columns only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = batch.schema.get_field_index("keys")
    words = pc.split_pattern(pc.fill_null(batch.column(at), ""), " ")
    parents = pc.list_parent_indices(words)
    hits = pc.filter(parents, pc.is_in(pc.list_flatten(words), value_set=pa.array(keys, pa.string())))
    kept = batch.take(pc.unique(hits))
    return kept.select(list(range(columns)))
