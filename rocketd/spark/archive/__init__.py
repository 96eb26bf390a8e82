"""An archive of messages in a directory: Parquet files, and a manifest that says which of them count.

Spark's own Parquet sink leaves files of unfinished batches behind that every reader but Spark takes for data. Here only
what a numbered commit names is in the archive, for every reader that asks the manifest.
"""
