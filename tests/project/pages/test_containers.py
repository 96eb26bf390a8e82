"""The files for containers and Kubernetes in etc/: commands, settings, paths and ports in them exist and agree."""

import contextlib
import io
import json
import re
from pathlib import PurePosixPath

import yaml
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.tap import Options as BrokerOptions
from rocketd.namesrv.tap import Options as NamesrvOptions
from tests.support.places import ROOT

CONTAINER = ROOT / "etc" / "container"
KUBERNETES = ROOT / "etc" / "kubernetes"
CONTAINERFILE = (CONTAINER / "Containerfile").read_text()
OPTIONS = {"broker": BrokerOptions, "namesrv": NamesrvOptions}
STATE = "/var/lib/rocketd"
VIP_PORT_DISTANCE, SLAVE_PORT_DISTANCE = 2, 1
VALUES = {"POD_IP": "10.0.0.7", "NUMBER": "0", "ROCKETD_ADDRESS:-127.0.0.1": "127.0.0.1"}


def settings_of(command):
    """Return the settings of a command of the image, and check that they give no warning."""
    kind, run, *arguments = (re.sub(r"\$[({](.*?)[)}]", lambda found: VALUES[found[1]], word) for word in command)
    assert run == "run", command
    arguments = [word.replace("/etc/rocketd/", f"{CONTAINER}/") for word in arguments]
    options = OPTIONS[kind]()
    complaints = io.StringIO()
    with contextlib.redirect_stderr(complaints):
        options.parseOptions(arguments)
    assert complaints.getvalue() == "", complaints.getvalue()
    return options.settings


def ports_of(settings):
    """Return the ports on which a server listens."""
    port = settings.server.listen_port
    broker = {port - VIP_PORT_DISTANCE, port + SLAVE_PORT_DISTANCE} if hasattr(settings, "broker") else set()
    return {port, settings.metrics.metrics_port} | broker


def paths_to_write(settings):
    """Return the paths of a server's files."""
    if hasattr(settings, "broker"):
        return [settings.store.store_path_root_dir]
    return [settings.namesrv.kv_config_path, settings.namesrv.config_store_path]


class ContainerfileTests(SynchronousTestCase):
    def test_stages_copy_existing_files_and_build_the_wheel_first(self):
        build, final = re.split(r"(?m)^FROM ", CONTAINERFILE)[1:]
        for line in re.findall(r"(?m)^COPY (?!--)(.*) \S+$", CONTAINERFILE):
            for path in line.split():
                self.assertTrue((ROOT / path).exists(), path)
        copied = set(re.findall(r"(?m)^COPY (\w+) \1$", build))
        self.assertEqual(copied, {"etc", "twisted", "rocketd", "pyspark_rocketd"})
        self.assertIn("pip wheel", build)
        self.assertNotIn("pip", final)
        self.assertIn("COPY --from=build /opt/rocketd /opt/rocketd", final)

    def test_user_is_a_number_above_zero_and_owns_the_volume(self):
        (user,) = re.findall(r"(?m)^USER (\d+):\d+$", CONTAINERFILE)
        self.assertGreater(int(user), 0)
        self.assertIn(f"chown {user}:{user} {STATE}", CONTAINERFILE)
        self.assertIn(f"\nVOLUME {STATE}\n", CONTAINERFILE)

    def test_ports_are_those_of_the_servers(self):
        (exposed,) = re.findall(r"(?m)^EXPOSE (.*)$", CONTAINERFILE)
        servers = [settings_of([kind, "run", "-c", f"/etc/rocketd/{kind}.conf"]) for kind in OPTIONS]
        self.assertEqual(set(map(int, exposed.split())), set().union(*map(ports_of, servers)))
        for settings in servers:
            self.assertIn(f"http://127.0.0.1:{settings.metrics.metrics_port}/healthz", CONTAINERFILE)

    def test_default_command_runs_a_broker(self):
        (entry, command) = re.findall(r"(?m)^(?:ENTRYPOINT|CMD) (\[.*\])$", CONTAINERFILE)
        self.assertEqual(json.loads(entry), ["rocketd"])
        self.assertTrue(hasattr(settings_of(json.loads(command)), "broker"))


class ComposeTests(SynchronousTestCase):
    def setUp(self):
        self.file = yaml.safe_load((CONTAINER / "compose.yaml").read_text())

    def test_services_run_the_image_with_known_settings(self):
        servers = {name: settings_of(service["command"]) for name, service in self.file["services"].items()}
        self.assertEqual(list(servers), ["namesrv", "broker"])
        port = servers["namesrv"].server.listen_port
        self.assertEqual(servers["broker"].broker.namesrv_addr, f"namesrv:{port}")
        for name, service in self.file["services"].items():
            for mapping in service["ports"]:
                self.assertIn(int(mapping.rpartition(":")[2]), ports_of(servers[name]))

    def test_services_have_the_health_check_of_the_image(self):
        (options, command) = re.findall(r"(?m)^HEALTHCHECK (.*) CMD (\[.*\])$", CONTAINERFILE)[0]
        expected = {key.replace("-", "_"): value for key, value in re.findall(r"--([\w-]+)=(\w+)", options)}
        for service in self.file["services"].values():
            check = {key: str(value) for key, value in service["healthcheck"].items() if key != "test"}
            self.assertEqual(check, expected)
            self.assertEqual(service["healthcheck"]["test"], ["CMD", *json.loads(command)])

    def test_files_of_servers_are_on_the_volume(self):
        for service in self.file["services"].values():
            for path in paths_to_write(settings_of(service["command"])):
                self.assertTrue(PurePosixPath(path).is_relative_to(STATE), path)

    def test_services_have_volumes_a_read_only_root_and_no_capability(self):
        for name, service in self.file["services"].items():
            self.assertEqual(service["volumes"], [f"{name}:{STATE}"])
            self.assertIn(name, self.file["volumes"])
            self.assertEqual((service["read_only"], service["cap_drop"]), (True, ["ALL"]))
            build = service["build"]
            self.assertEqual((CONTAINER / build["context"]).resolve(), ROOT)
            self.assertTrue((ROOT / build["dockerfile"]).is_file())


class KubernetesTests(SynchronousTestCase):
    def setUp(self):
        self.objects = [
            (path.name, item)
            for path in sorted(KUBERNETES.glob("*.yaml"))
            for item in yaml.safe_load_all(path.read_text())
            if item["kind"] != "Kustomization"
        ]

    def of_kind(self, kind):
        return {item["metadata"]["name"]: item for _, item in self.objects if item["kind"] == kind}

    def test_kustomization_lists_existing_files_and_the_image(self):
        file = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
        self.assertEqual(file["resources"], ["namesrv.yaml", "brokers.yaml"])
        for name in file["resources"]:
            self.assertTrue((KUBERNETES / name).is_file())
        images = {self.container(item)["image"] for item in self.of_kind("StatefulSet").values()}
        self.assertEqual(images, {image["name"] for image in file["images"]})

    def container(self, stateful_set):
        (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
        return container

    def test_each_server_has_a_service_and_a_disruption_budget(self):
        sets, services = self.of_kind("StatefulSet"), self.of_kind("Service")
        self.assertEqual(list(sets), ["rocketd-broker", "rocketd-namesrv", "rocketd-slave"])
        versions = {item["kind"]: item["apiVersion"] for _, item in self.objects}
        self.assertEqual(versions, {"Service": "v1", "PodDisruptionBudget": "policy/v1", "StatefulSet": "apps/v1"})
        for name, item in sets.items():
            labels = {"app": name}
            spec = item["spec"]
            self.assertEqual(spec["serviceName"], name)
            self.assertEqual(spec["selector"]["matchLabels"], labels)
            self.assertEqual(spec["template"]["metadata"]["labels"], labels)
            self.assertEqual(services[name]["spec"]["selector"], labels)
            self.assertEqual(services[name]["spec"]["clusterIP"], "None")
            budget = self.of_kind("PodDisruptionBudget")[name]["spec"]
            self.assertEqual(budget, {"maxUnavailable": 1, "selector": {"matchLabels": labels}})

    def test_arguments_ports_and_probes_agree(self):
        for name, item in self.of_kind("StatefulSet").items():
            container = self.container(item)
            settings = settings_of(container["args"])
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            self.assertEqual(set(ports.values()), ports_of(settings), name)
            service = self.of_kind("Service")[name]["spec"]["ports"]
            self.assertEqual({port["name"]: port["port"] for port in service}, ports)
            self.assertEqual(settings.metrics.metrics_host, "0.0.0.0")
            for probe, page in (("startup", "healthz"), ("liveness", "healthz"), ("readiness", "readyz")):
                self.assertEqual(container[f"{probe}Probe"]["httpGet"], {"path": f"/{page}", "port": "metrics"})
            annotations = item["spec"]["template"]["metadata"]["annotations"]
            self.assertEqual(int(annotations["prometheus.io/port"]), ports["metrics"])

    def test_brokers_name_all_name_servers_and_slaves_copy_them(self):
        sets = self.of_kind("StatefulSet")
        count = sets["rocketd-namesrv"]["spec"]["replicas"]
        expected = ";".join(f"rocketd-namesrv-{number}.rocketd-namesrv:9876" for number in range(count))
        master, slave = (
            settings_of(self.container(sets[name])["args"]) for name in ("rocketd-broker", "rocketd-slave")
        )
        for settings in (master, slave):
            self.assertEqual(settings.broker.namesrv_addr, expected)
            self.assertEqual((settings.broker.broker_name, settings.broker.broker_ip1), ("broker-0", "10.0.0.7"))
        self.assertEqual((master.broker.broker_id, slave.broker.broker_id), (0, 1))
        self.assertEqual((master.store.broker_role, slave.store.broker_role), ("ASYNC_MASTER", "SLAVE"))

    def test_pods_are_not_root_and_write_to_volumes_only(self):
        (user,) = re.findall(r"(?m)^USER (\d+):\d+$", CONTAINERFILE)
        for item in self.of_kind("StatefulSet").values():
            pod, container = item["spec"]["template"]["spec"], self.container(item)
            context = pod["securityContext"]
            self.assertTrue(context["runAsNonRoot"])
            self.assertEqual({context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")}, {int(user)})
            own = container["securityContext"]
            self.assertTrue(own["readOnlyRootFilesystem"])
            self.assertEqual((own["allowPrivilegeEscalation"], own["capabilities"]), (False, {"drop": ["ALL"]}))
            volumes = {volume["name"] for volume in pod["volumes"]}
            volumes |= {claim["metadata"]["name"] for claim in item["spec"]["volumeClaimTemplates"]}
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            self.assertEqual((set(mounts), mounts["data"]), (volumes, STATE))
            for path in paths_to_write(settings_of(container["args"])):
                self.assertTrue(PurePosixPath(path).is_relative_to(STATE), path)
