"""Sessions of `nox`: the checks, each in an environment of its own under ``.nox``.

``nox`` runs lint, types and test; ``nox -s fuzz`` runs one; what stands after ``--`` goes to the program that the session
runs: ``nox -s test -- tests/unit/remoting/wire/test_frame.py -k limit``. ``nox -R`` installs nothing again. ``nox
--no-venv`` takes the environment that is active, which has the extra ``dev``.

The sessions that run tests are the rings. Each one says how long it takes, and ``nox -s crash -- --failed`` runs only what
failed last time. ``nox -s full`` runs all of them.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2026"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "test"]

ROOT = Path(__file__).parent
PAGES = (
    "tests/project/pages/test_readme.py",
    "tests/project/pages/test_features_page.py",
    "tests/project/pages/test_security_page.py",
)
"""Tests of the pages that are written by hand."""
MINUTES = {"test": 11, "long": 2, "smoke": 3, "crash": 2, "fuzz": 1, "interop": 24, "spark": 17, "compiled": 2}
"""The rings, and how long each takes on two cores that do nothing else, without the installation."""
REPORTS = Path("build", "reports")
NO_TESTS = 5
"""Pytest's status of a run that had no test to run."""
COMPILED_UNITS = "store or send or pull or batch or record or index or hash or properties or frame or core"
"""Unit tests that run code of the core, as pytest selects them."""


def install(session: nox.Session, *requirements: str) -> None:
    """Install into the session's environment. With ``--no-venv`` it is the developer's own, and nothing is installed."""
    if session.virtualenv.is_sandboxed:
        session.install("-q", *requirements)


def ring(session: nox.Session, extra: str, *options: str, tests: Sequence[str] = ()) -> None:
    """Run pytest on some tests. After ``--``, tests replace the session's own, and options come after the session's.

    ``build/reports`` gets a JUnit file, which has the first outcome of each test, and the list for ``--failed``. A ring that
    has no report yet runs as a whole.
    """
    install(session, "-e", f".[{extra}]")
    report = REPORTS / f"{session.name}.xml"
    session.log(f"about {MINUTES[session.name]} min on two idle cores; the report will be {report}")
    given = list(session.posargs)
    arguments = [f"--junit-xml={report}", "-o", f"cache_dir={REPORTS / session.name}"]
    codes = [0]
    if "--failed" in given:
        given.remove("--failed")
        if report.exists():
            arguments += ["--last-failed", "--last-failed-no-failures=none"]
            codes.append(NO_TESTS)
    if not any(argument.startswith("tests/") for argument in given):
        given += tests
    session.run("python", "-m", "pytest", "--again", *arguments, *options, *given, success_codes=codes)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format and the layers of docs/architecture.md."""
    install(session, "-e", ".[lint]")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check", *session.posargs)
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types, which needs every optional package. Misspelt attributes on the paths of requests must be found."""
    install(session, "-e", ".[dev]")
    session.run("mypy", *session.posargs)
    session.run("python", "-m", "tests.support.typos")


@nox.session
def test(session: nox.Session) -> None:
    """Units on virtual clocks, the project's rules, and servers on free ports, without the long tests."""
    ring(session, "dev")


@nox.session
def long(session: nox.Session) -> None:
    """Tests of servers that take more than ten seconds each: steps of the clock, kills of pairs, hung peers."""
    ring(session, "dev", "-v", "-n", "2", "-m", "long", tests=["tests/servers"])


@nox.session
def smoke(session: nox.Session) -> None:
    """Every part of the product once, for real. Needs what interop needs."""
    lines = (ROOT / "tests" / "smoke.txt").read_text().splitlines()
    tests = [line for line in lines if line and not line.startswith("#")]
    ring(session, "dev", "-v", "-n", "2", tests=tests)


@nox.session
def crash(session: nox.Session) -> None:
    """Brokers that are killed, and power cuts."""
    ring(session, "test", "-v", tests=["tests/crash"])


@nox.session
def fuzz(session: nox.Session) -> None:
    """Damaged frames, requests and store files."""
    ring(session, "test", "-v", tests=["tests/fuzz"])


@nox.session
def interop(session: nox.Session) -> None:
    """Unmodified clients and Apache's own servers. Needs JDK 17 with Maven, Go, and Node with npm."""
    ring(session, "dev", "-v", tests=["tests/interop"])


@nox.session
def spark(session: nox.Session) -> None:
    """The pipeline, in one Spark session."""
    ring(session, "dev", "-v", tests=["tests/spark"])


@nox.session
def trial(session: nox.Session) -> None:
    """Units and the project's rules under Twisted's runner, with all generated examples."""
    install(session, "-e", ".[dev]")
    directory = Path(session.create_tmp()).resolve()
    arguments = session.posargs or ("tests.unit", "tests.project")
    environment = {"ROCKETD_EXAMPLES": "all", "TMPDIR": str(directory)}
    session.run("python", "-m", "twisted.trial", f"--temp-directory={directory}/trial", *arguments, env=environment)


@nox.session
def compiled(session: nox.Session) -> None:
    """Compile the core in place, and run the units that touch it. Needs a C compiler and Python's headers."""
    install(session, "-e", ".[dev]")
    session.run("python", "setup.py", "-q", "build_ext", "--inplace")
    if "(compiled core)" not in session.run("rocketd", "--version", silent=True):
        session.error("rocketd --version does not name the compiled core")
    ring(session, "dev", "-q", "-n", "4", "-k", COMPILED_UNITS, tests=["tests/unit"])


@nox.session
def bench(session: nox.Session) -> None:
    """Measure three rows of rocketd alone, in half a minute. Needs Go."""
    install(session, "-e", ".")
    rows = ("--rows", "send 1 KB C=8 W=64", "--rows", "pull of 32", "--rows", "start to first send")
    short = ("--sides", "rocketd", "--rounds", "1", "--seconds", "2", "--warm", "2", *rows)
    session.run("python", "-m", "benchmarks", *(session.posargs or short))


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated pages, fail if one was out of date, check links and indexes of the others, build the site."""
    install(session, "-e", ".[test,spark,docs]")
    before = pages()
    for name in ("settings", "errors", "commands"):
        text = session.run("python", "-m", f"rocketd.tools.gen_docs.{name}", silent=True)
        (ROOT / "docs" / f"{name}.md").write_text(text)
    session.run("python", "-m", "rocketd.spark.gen_docs", "docs/spark.md")
    session.run("python", "-m", "pytest", "-q", *PAGES, *session.posargs)
    after = pages()
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if changed:
        session.error(f"these pages were out of date and are written anew, commit them: {', '.join(changed)}")
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


def pages() -> dict[str, str]:
    """Return the text of each page by its path."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("docs/**/*.md")}


@nox.session
def dist(session: nox.Session) -> None:
    """Build sdist and wheel into dist/, and start `twistd` of a fresh environment that has the wheel alone."""
    install(session, "build")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build")
    (wheel,) = (ROOT / "dist").glob("*.whl")
    directory = Path(session.create_tmp()).resolve()
    fresh = directory / "fresh"
    session.run(sys.executable, "-m", "venv", "--clear", str(fresh), external=True)
    session.run(str(fresh / "bin" / "python"), "-m", "pip", "install", "-q", str(wheel), external=True)
    # Outside of the clone, whose own packages Python would import.
    with session.chdir(directory):
        overview = session.run(str(fresh / "bin" / "twistd"), "--help", silent=True, external=True)
        session.run(str(fresh / "bin" / "rocketd"), "--version", external=True)
    for plugin in ("rocketd-namesrv", "rocketd-broker"):
        if plugin not in overview:
            session.error(f"twistd of an environment with {wheel.name} does not list {plugin}")


@nox.session(venv_backend="none")
def full(session: nox.Session) -> None:
    """Every other session, one after another: for a release, or before an issue is called resolved."""
    for name in ("lint", "types", "docs", "dist", "bench", "trial"):
        session.notify(name, [])
    for name in MINUTES:
        session.notify(name, session.posargs)
