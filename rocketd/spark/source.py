"""What a read reads from: the files of a store, or a cluster; the same for the data source and for the fused jobs.

A Source crosses to the tasks by pickle. It takes no connection and no file along: they are opened where they are used.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketd.spark.errors import BrokerError, OptionError
from rocketd.spark.options import ConnectOptions, ReadOptions
from rocketd.spark.planning.follow import FIRST_PATIENCE
from rocketd.spark.ranges import Catalog, OnLoss, QueueRange

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketd.spark.wire.cluster import Cluster
    from rocketd.spark.wire.options import ClusterOptions

_WORTH_ASKING: Final = 8192
"""Messages from which on their size is worth sending a broker samples of it for."""


class Source:
    """A catalog and how to read from it. Not for several threads at once."""

    def __init__(self, options: ReadOptions, patience: float | None = None) -> None:
        """`patience` is for how long (s) the catalog asks a server that is away again; reading does as the options say."""
        self.options = options
        self._patience = min(options.retry_timeout, FIRST_PATIENCE) if patience is None else patience
        self._catalog: Catalog | None = None
        self._cluster: Cluster | None = None

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
        """The store or the cluster, opened at the first use. Raises StoreFilesError, BrokerError."""
        if self._catalog is None:
            self._catalog = _open(self.options, self._patience)
        return self._catalog

    def size(self, part: QueueRange, *, worth_asking: int = _WORTH_ASKING) -> int | None:
        """About how many bytes a range has, None where nobody was asked: a cluster is for more than `worth_asking`
        messages.
        """
        if not self.is_store and part.count <= worth_asking:
            return None
        try:
            return self.catalog.bytes_of(part)
        except BrokerError:
            return None  # a guess does, and reading is more patient

    def plan(self) -> list[QueueRange]:
        """The ranges of a batch read, sorted, with ends frozen now. Raises OptionError, DataLossError, BrokerError."""
        from rocketd.spark.planning.batch import planned_ranges

        return planned_ranges(self.catalog, self.options)

    def tasks(self, ranges: Sequence[QueueRange], *, cores: int | None = None) -> list[tuple[QueueRange, ...]]:
        """The ranges cut and grouped into tasks; see `rocketd.spark.planning.splits`."""
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
        """Rows of a range, ascending, in batches of just these columns.

        Raises DataLossError when messages of it are gone, unless `on_loss` takes each lost range, and then goes on.
        """
        wanted = tuple(columns)
        if self.options.keys and "keys" not in wanted:
            wanted = (*wanted, "keys")
        plan = self.options.read_plan(wanted)
        if self.options.store:
            from rocketd.spark.store_tree import StoreTree

            assert isinstance(self.catalog, StoreTree)
            batches = self.catalog.read(part, plan, on_loss)
        else:
            from rocketd.spark.wire.cluster import Cluster
            from rocketd.spark.wire.read import read_range

            if self._cluster is None:
                self._cluster = Cluster(cluster_options(self.options))
            batches = read_range(self._cluster, part, plan, on_loss)
        for batch in batches:
            kept = _with_keys(batch, self.options.keys, len(columns)) if self.options.keys else batch
            if kept.num_rows:
                yield kept

    def close(self) -> None:
        """Let go of files and connections; the next use opens them again."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


def open_source(options: ReadOptions) -> Source:
    """The source that the options name. Opens nothing yet."""
    return Source(options)


def cluster_options(options: ConnectOptions, patience: float | None = None) -> "ClusterOptions":
    """The connection part of options as the blocking client takes it. `patience` (s) is retryTimeout where not given.

    Raises OptionError, also where the credentials file cannot be read.
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
        from rocketd.spark.store_tree import StoreTree

        return StoreTree(options.store, options.broker_name, options.commit_log)
    from rocketd.spark.wire.catalog import BrokerCatalog

    catalog: Catalog = BrokerCatalog(cluster_options(options, patience))
    if options.broker_name:
        from rocketd.spark.planning.one_broker import OneBroker

        return OneBroker(catalog, options.broker_name)
    return catalog


def _with_keys(batch: "pa.RecordBatch", keys: Sequence[str], columns: int) -> "pa.RecordBatch":
    """The rows that have one of the keys, with the first `columns` columns only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = batch.schema.get_field_index("keys")
    words = pc.split_pattern(pc.fill_null(batch.column(at), ""), " ")
    parents = pc.list_parent_indices(words)
    hits = pc.filter(parents, pc.is_in(pc.list_flatten(words), value_set=pa.array(keys, pa.string())))
    kept = batch.take(pc.unique(hits))
    return kept.select(list(range(columns)))
