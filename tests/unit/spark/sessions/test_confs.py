"""The settings of a session: the defaults, the user's overrides, and masters."""

import os

from twisted.trial.unittest import TestCase

from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.confs import EVERYWHERE, LOCAL, LOG_FILE, machine_settings, read_master, session_confs

LOG = "-Dlog4j2.configurationFile=file://"
ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
OURS = f"{LOG}{LOG_FILE} {ARROW}"


class MasterTest(TestCase):
    def test_masters_of_one_machine(self):
        here = len(os.sched_getaffinity(0))
        for text, cores in (
            ("local", 1),
            ("local[3]", 3),
            ("local[*]", here),
            ("local[2,3]", 2),
            ("local[*, 4]", here),
        ):
            master = read_master(text)
            self.assertEqual((master.url, master.local, master.cores), (text, True, cores))

    def test_masters_of_many_machines(self):
        several = "spark://one:7077,two:7077", "spark://[fd00::1]:7077,two:7077"
        for text in ("spark://host:7077", *several, "yarn", "k8s://https://host:443", "local-cluster[2,1,1024]"):
            self.assertFalse(read_master(text).local)

    def test_unknown_masters_are_refused(self):
        for text in (
            "",
            "locl",
            "local[0]",
            "local[x]",
            "local[2",
            "spark://host",
            "spark://::1:7077",
            "spark://[::1]",
            "host:7077",
            "LOCAL",
        ):
            self.assertIn("accepted are local[N]", str(self.assertRaises(SparkError, read_master, text)))


class ConfsTest(TestCase):
    def test_each_setting_has_a_reason_and_is_there_once(self):
        table = [*EVERYWHERE, *LOCAL]
        self.assertEqual(len({conf.key for conf in table}), len(table))
        for conf in table:
            self.assertTrue(conf.why)
            self.assertEqual(session_confs(read_master("local[2]"))[conf.key], conf.value)

    def test_only_one_machine_is_bound_to_itself(self):
        confs = session_confs(read_master("spark://host:7077"))
        self.assertNotIn("spark.driver.bindAddress", confs)
        self.assertNotIn("spark.sql.shuffle.partitions", confs)

    def test_given_settings_win(self):
        confs = session_confs(
            read_master("local[4]"),
            {"spark.ui.enabled": True, "spark.sql.shuffle.partitions": 7, "spark.mine": "x"},
            "2g",
        )
        self.assertEqual(confs["spark.ui.enabled"], "true")
        self.assertEqual(confs["spark.sql.shuffle.partitions"], "7")
        self.assertEqual(confs["spark.mine"], "x")
        self.assertEqual(confs["spark.driver.memory"], "2g")

    def test_a_cluster_on_this_machine_is_bound_to_it(self):
        for text in ("spark://127.0.0.1:7077", "spark://localhost:7077", "local-cluster[2,1,1024]"):
            self.assertEqual(session_confs(read_master(text))["spark.driver.host"], "127.0.0.1")

    def test_settings_of_the_machine_are_kept(self):
        directory = self.mktemp()
        os.mkdir(directory)
        with open(os.path.join(directory, "spark-defaults.conf"), "w") as file:
            file.write(
                "# ours\nspark.ui.enabled  true\nspark.network.timeout=9s \nspark.driver.extraJavaOptions -Xss2m\n"
            )
        machine = machine_settings({"SPARK_CONF_DIR": directory})
        confs = session_confs(read_master("local"), {"spark.ui.enabled": "false"}, None, machine)
        self.assertEqual(confs["spark.ui.enabled"], "false")
        self.assertNotIn("spark.network.timeout", confs)
        self.assertEqual(confs["spark.driver.extraJavaOptions"], f"{OURS} -Xss2m")
        self.assertEqual(machine_settings({"SPARK_HOME": directory}), {})

    def test_java_options_keep_defaults_unless_overridden(self):
        driver, executor = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
        local = read_master("local")
        self.assertTrue(os.path.exists(LOG_FILE))
        self.assertEqual(session_confs(local)[driver], OURS)
        self.assertEqual(session_confs(local)[executor], ARROW)
        self.assertEqual(session_confs(local, {driver: "-Xss4m"})[driver], f"{OURS} -Xss4m")
        own = "-Dlog4j2.configurationFile=mine.properties"
        self.assertEqual(session_confs(local, {driver: own})[driver], f"{ARROW} {own}")
        own = "-Darrow.enable_unsafe_memory_access=false"
        self.assertEqual(session_confs(local, {driver: own})[driver], f"{LOG}{LOG_FILE} {own}")
        self.assertEqual(session_confs(local, {executor: own})[executor], own)

    def test_wrong_names_and_sizes_are_refused(self):
        error = self.assertRaises(SparkError, session_confs, read_master("local"), {"ui.enabled": "true"})
        self.assertIn("'ui.enabled' is not a setting of Spark", str(error))
        for size in ("4", "4gb", "g", "-1g", "0m", "1.5g"):
            error = self.assertRaises(SparkError, session_confs, read_master("local"), None, size)
            self.assertIn("is not an amount of memory", str(error))
