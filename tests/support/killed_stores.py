"""Copies of running stores, as a kill leaves their files."""

import shutil

from rocketd.store.message_store import MessageStore


def stop_writers(store: MessageStore) -> None:
    """End the threads of a running store which make and rename files, before a test copies them."""
    store._reput.stop()
    store._maintenance.stop()


def copy_of_killed(store: MessageStore, copy: str, source: str = "") -> str:
    """Copy the directory of a running store, or the one above it as `source`. Returns the path of the copy."""
    stop_writers(store)
    shutil.copytree(source or store.root, copy)
    return copy
