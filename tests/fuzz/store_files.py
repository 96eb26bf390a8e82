"""Damages the files of a stopped store: it opens or refuses with its own errors, and its examination ends."""

import shutil
import tarfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random

from rocketd.broker.json_file import JsonFileError
from rocketd.store.errors import StoreError
from rocketd.store.examine import Examination
from rocketd.store.message_store import MessageStore
from rocketd.store.settings import MessageStoreConfig
from rocketd.store.stopped_store import StoppedStore

STORES = Path(__file__).resolve().parents[1] / "golden" / "stores"
STORE_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
STEP_SECONDS = 60.0


class StoreFuzzer:
    """Copies of a store that Apache's broker has written, each damaged in another way."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._random = Random(seed)
        self._directory = directory
        self._whole = directory / "whole"
        with tarfile.open(STORES / "store-killed.tar.xz") as archive:
            archive.extractall(self._whole, filter="data")
        (self._root,) = self._whole.iterdir()
        self.stores = 0

    def run(self, seconds: float) -> None:
        """Go on for so long. Raises AssertionError for any error that the store does not document."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            copy = self._directory / f"copy-{self.stores}"
            shutil.copytree(self._root, copy)
            done = self._damage(copy)
            began = time.monotonic()
            try:
                self._open(copy)
            except (StoreError, JsonFileError):
                pass
            except Exception:
                raise AssertionError(f"{done}, files in {copy}\n{traceback.format_exc()}") from None
            if time.monotonic() - began > STEP_SECONDS:
                raise AssertionError(f"{done}, files in {copy}: took longer than {STEP_SECONDS:g} s")
            shutil.rmtree(copy)
            self.stores += 1

    def _open(self, root: Path) -> None:
        with suppress(StoreError):
            self._examine(root)
        store = MessageStore(MessageStoreConfig(store_path_root_dir=str(root)), STORE_HOST)
        store.start()
        try:
            for topic, queue_id in store.queue_keys():
                offset = store.get_min_offset(topic, queue_id)
                store.get_messages(topic, queue_id, offset, 32, None)
        finally:
            store.stop()

    def _examine(self, root: Path) -> None:
        for _ in Examination(StoppedStore(str(root))).findings():
            pass

    def _damage(self, root: Path) -> str:
        """Damage a file or two and return what was done."""
        random = self._random
        done = []
        files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
        for _ in range(random.randrange(1, 4)):
            path = random.choice(files)
            size = path.stat().st_size
            position = self._position(path, size)
            kind = random.randrange(5)
            with path.open("r+b") as file:
                if kind == 0:
                    file.truncate(position)
                elif kind == 1:
                    file.seek(position)
                    file.write(bytes(random.randrange(1, 5000)))
                elif kind == 2:
                    file.seek(position)
                    file.write(random.randbytes(random.randrange(1, 200)))
                else:
                    file.seek(position)
                    old = file.read(1) or b"\x00"
                    file.seek(position)
                    file.write(bytes((old[0] ^ 1 << random.randrange(8),)))
            done.append(f"{path.relative_to(root)}: {('cut', 'zeros', 'noise', 'bit', 'bit')[kind]} at {position}")
        return "; ".join(done)

    def _position(self, path: Path, size: int) -> int:
        """A place in a file, most often where it has data: most files are holes."""
        if self._random.random() < 0.2:
            return self._random.randrange(size)
        return self._random.randrange(min(size, 60_000))
