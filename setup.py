"""Compiles the core with mypyc, where that is possible; everything else about the package is in setup.cfg.

`pip install .` and wheels are compiled where there is a C compiler with Python's headers; where there is none, or a step
fails, one line says so and the package is installed as pure Python. An editable install is never compiled by itself: `python
setup.py build_ext --inplace` does it, until the sources change (rocketd/core.py). ROCKETD_PURE=1 compiles nothing.
"""

import os
import runpy
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.abspath(__file__))
CORE = runpy.run_path(os.path.join(HERE, "rocketd", "core.py"))
COMPILING_COMMANDS = {"bdist_wheel", "build", "build_ext", "install"}
MYPY_OPTIONS = [
    "--config-file=",
    "--namespace-packages",
    "--explicit-package-bases",
    # Compiled alike whatever happens to be installed: what the core imports counts as untyped.
    "--follow-imports=skip",
    "--ignore-missing-imports",
]


def say(line: str) -> None:
    """Print one line, which pip shows with -v."""
    print(f"rocketd: {line}", file=sys.stderr, flush=True)


def compiler_works() -> bool:
    """Whether a C file that includes Python's headers can be compiled."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler, get_python_inc

    with tempfile.TemporaryDirectory() as directory:
        source = os.path.join(directory, "works.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("#include <Python.h>\nint works(void) { return 0; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            compiler.compile([source], output_dir=directory, include_dirs=[get_python_inc()])
        except Exception:
            return False
    return True


def core_extensions() -> list:
    """The compiled modules; none, and one line, where the core stays pure Python."""
    if not COMPILING_COMMANDS.intersection(sys.argv[1:]):
        return []
    if CORE["wants_pure"]():
        say(f"pure Python core, as {CORE['PURE']} asks for")
        return []
    if not compiler_works():
        say("pure Python core: there is no C compiler, or it does not find Python.h")
        return []
    sources = [f"rocketd/{CORE['source_of'](module)}" for module in CORE["MODULES"]]
    os.chdir(HERE)
    try:
        from mypyc.build import mypycify

        return mypycify([*MYPY_OPTIONS, *sources], opt_level="3", debug_level="0", group_name="rocketd.core")
    except (Exception, SystemExit) as error:
        say(f"pure Python core: mypyc failed: {type(error).__name__}: {error}")
        return []


class BuildCore(build_ext):
    """Compiles all or nothing, and notes from which sources."""

    def run(self) -> None:
        """As setuptools' own, but a failure is one line."""
        target = os.path.join(HERE if self.inplace else self.build_lib, "rocketd")
        note = os.path.join(target, CORE["DIGEST_FILE"])
        if os.path.exists(note):
            os.remove(note)
        if not self.extensions:
            return
        try:
            super().run()
        except Exception as error:
            say(f"pure Python core: compiling failed with {type(error).__name__}, of which the lines above tell more")
            for extension in self.extensions:
                name = self.get_ext_filename(self.get_ext_fullname(extension.name))
                path = os.path.join(os.path.dirname(target), name)
                if os.path.exists(path):
                    os.remove(path)
            return
        with open(note, "w", encoding="ascii") as file:
            file.write(CORE["digest"](os.path.join(HERE, "rocketd")) + "\n")
        say("compiled core")


setup(ext_modules=core_extensions(), cmdclass={"build_ext": BuildCore})
