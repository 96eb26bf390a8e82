"""Apache's mqadmin, run command after command in one JVM; tests/interop/mqadmin/Driver.java is its other half."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support import apache

SOURCE = Path(__file__).parent / "mqadmin" / "Driver.java"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'


class DriverError(AssertionError):
    """The JVM with mqadmin in it failed, which is different from an error of mqadmin."""


class Driver:
    """A JVM in which mqadmin runs against one name server; ``stop`` ends it."""

    def __init__(self, home: Path, namesrv: str, credentials: str = "") -> None:
        """``home`` is a directory to be made for it; ``credentials`` go into the file that mqadmin takes them from."""
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "logback_tools.xml").write_text(_LOGBACK)
        if credentials:
            (home / "conf" / "tools.yml").write_text(credentials)
        self._log = home / "driver.log"
        command = [
            *("java", *_JVM, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"),
            *("-cp", f"{apache.fetch_jars()}/*", str(SOURCE), namesrv),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """One request of the program's; it says which there are."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **request}) + "\n")
        stdin.flush()
        line = stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failure": f"ended with {self._process.wait()}"}
        if "failure" in answer:
            raise DriverError(f"{do} {request}: {answer['failure']}\n{self._log.read_text(errors='replace')[-1500:]}")
        return answer

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
