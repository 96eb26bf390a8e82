"""The documentation site: the layout of the repository, the navigation of the index, the names of the Python API."""

import logging
import re
import shutil
import subprocess
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocstrings import Inventory
from twisted.trial.unittest import SynchronousTestCase

from docsite import hooks
from rocketd import client
from rocketd.client import aio, sync
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "client-api.md"
FACES = {"aio": aio, "sync": sync}
CLIENTS = ("Admin", "Consumer", "LitePullConsumer", "Producer", "PullConsumer")
OPTIONS = {
    "producer.options.ProducerOptions",
    "consumer.options.kind_options.ConsumerOptions",
    "consumer.options.kind_options.LitePullOptions",
}
INDEX = """# Documentation

## Tutorial

- [Try it](../README.md#try-it), then [Spark](spark.md) and the [table](spark.md#table).
- [Examples](../examples/), [a file](../examples/acl.py), [elsewhere](https://example.org/page.md)

## Reference

- [Spark again](spark.md), [Settings](settings.md)
"""


class NavigationTests(SynchronousTestCase):
    def test_navigation_has_each_page_below_the_first_heading_that_links_it(self):
        self.assertEqual(
            hooks.navigation(INDEX),
            ["README.md", {"Tutorial": ["docs/spark.md", "examples/README.md"]}, {"Reference": ["docs/settings.md"]}],
        )

    def test_navigation_of_index_has_its_headings_and_all_guides(self):
        first, *sections = hooks.navigation((ROOT / hooks.INDEX).read_text())
        self.assertEqual(first, "README.md")
        self.assertEqual(
            [name for section in sections for name in section],
            ["Tutorial", "How-to guides", "Reference", "Explanation"],
        )
        (guides,) = [section["How-to guides"] for section in sections if "How-to guides" in section]
        self.assertNotIn("docs/security.md", guides)
        pages = {page for section in sections for pages in section.values() for page in pages}
        self.assertIn("docs/security.md", pages)
        self.assertLessEqual({str(path.relative_to(ROOT)) for path in ROOT.glob("docs/howto/*.md")}, pages)


class LinkTests(SynchronousTestCase):
    def test_link_to_directory_leads_to_its_readme(self):
        text = "[a](../etc/systemd), [b](../examples/#more), [c](howto/console.md), [d](https://example.org/etc), [e](#etc)"
        self.assertEqual(
            hooks.with_readmes(text, "docs/performance.md"),
            text.replace("systemd)", "systemd/README.md)").replace("examples/#", "examples/README.md#"),
        )

    def test_directory_gets_list_of_its_files(self):
        self.assertIn("etc/container", hooks.listed_directories())
        text = hooks.listing("etc/container")
        self.assertTrue(text.startswith("# etc/container\n"))
        self.assertIn("- [compose.yaml](compose.yaml)\n", text)
        self.assertIn("- [container/](container/)\n", hooks.listing("etc"))

    def test_picture_becomes_an_image_for_each_palette(self):
        text = (
            '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="pictures/a-dark.svg">\n'
            '  <img alt="Bars" src="pictures/a-light.svg">\n</picture>\n'
        )
        images = "![Bars](pictures/a-light.svg#only-light)\n![Bars](pictures/a-dark.svg#only-dark)\n"
        self.assertEqual(hooks.with_both_pictures(f"a\n{text}b\n{text}"), f"a\n{images}b\n{images}")
        small = hooks.with_both_pictures(text.replace('.svg">\n</p', '.svg" width="180">\n</p'))
        self.assertEqual(small, images.replace(")\n", "){ width=180 }\n"))

    def test_no_picture_of_a_page_stays_html(self):
        for path in hooks.repository_files():
            if path.endswith(".md"):
                self.assertNotIn("<picture>", hooks.with_both_pictures((ROOT / path).read_text()), path)

    def test_files_of_site_have_their_paths_in_the_repository(self):
        files = list(hooks.repository_files())
        for path in ("README.md", "LICENSE", "docs/howto/console.md", "etc/container/Containerfile", "examples/acl.py"):
            self.assertIn(path, files)
        self.assertEqual(len(files), len(set(files)))
        self.assertFalse([path for path in files if path.startswith("docs/internal/")])

    def test_site_has_tracked_files_only_or_those_of_an_archive_that_are_not_hidden(self):
        root = Path(self.mktemp()).resolve()
        kept = ["README.md", "docs/howto/new.md", "examples/acl.py"]
        for path in (*kept, "docs/.env", "docs/.cache/page.md", "docs/internal/features.md"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        (root / "docs" / "__pycache__").mkdir()
        (root / "docs" / "__pycache__" / "hooks.pyc").touch()
        self.assertEqual(hooks.repository_files(root), kept)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        subprocess.run(["git", "-C", str(root), "add", *kept], check=True)
        (root / "notes.md").touch()
        (root / "docs" / "howto" / "draft.md").touch()
        (root / "README.md").unlink()
        self.assertEqual(hooks.repository_files(root), kept[1:])


class SettingsTests(SynchronousTestCase):
    def test_build_fails_for_broken_links_and_anchors_and_loads_nothing_from_elsewhere(self):
        config = load_config(str(ROOT / "mkdocs.yml"))
        self.assertTrue(config.strict)
        self.assertLessEqual({config.validation.links.anchors, config.validation.links.not_found}, {30})
        self.assertIs(config.theme["font"], False)
        self.assertEqual(config.extra_javascript, [])


@cache
def built_api():
    """Build the Python API alone. Return the names that it shows, and the reader of the sources."""
    with TemporaryDirectory() as directory:
        docs, site = Path(directory, "docs"), Path(directory, "site")
        docs.mkdir()
        shutil.copy(PAGE, docs)
        paths = {"docs_dir": str(docs), "site_dir": str(site)}
        config = load_config(str(ROOT / "mkdocs.yml"), strict=False, hooks=[], extra_css=[], **paths)
        logging.disable(logging.WARNING)  # links to other pages lead nowhere here
        try:
            build(config)
        finally:
            logging.disable(logging.NOTSET)
        with (site / "objects.inv").open("rb") as file:
            shown = {name.removeprefix("rocketd.client.") for name in Inventory.parse_sphinx(file)}
    return shown, config.plugins["mkdocstrings"].get_handler("python")


class PythonApiTests(SynchronousTestCase):
    def setUp(self):
        self.shown, self.handler = built_api()

    def described(self, name):
        return self.handler.collect(f"rocketd.client.{name}", self.handler.get_options({}))

    def parameters(self, name):
        """Return the parameters of a constructor without ``self``."""
        own, *parameters = self.described(name).all_members["__init__"].parameters
        self.assertEqual(own.name, "self")
        return parameters

    def test_page_has_each_public_name_once(self):
        lines = re.findall(r"(?m)^::: rocketd\.client\.(\S+)$", PAGE.read_text())
        self.assertEqual(len(lines), len(set(lines)))
        self.assertEqual({name for name in client.__all__ if name not in self.shown}, set())
        faces = {f"{face}.{name}" for face in FACES for name in ("run", *CLIENTS)}
        self.assertEqual(faces - set(lines), set())
        self.assertEqual({name for name in lines if "." in name} - faces, OPTIONS)

    def test_page_has_all_methods_of_clients(self):
        for face, name in product(FACES, CLIENTS):
            kind = getattr(FACES[face], name)
            methods = {
                f"{name}.{method}" for method in dir(kind) if method[0] != "_" and callable(getattr(kind, method))
            }
            self.assertIn(f"{name}.close", methods)
            self.assertEqual({method for method in methods if f"{face}.{method}" not in self.shown}, set())
        lag = self.described("aio.Consumer.lag")
        self.assertEqual((lag.is_function, lag.labels), (True, {"async"}))

    def test_page_has_fields_of_values_and_leaves_out_internals(self):
        for kind in (client.Message, client.ReceivedMessage, client.MessageQueue, client.SendResult):
            names = {f"{kind.__name__}.{field}" for field in kind.__struct_fields__}
            self.assertEqual(names - self.shown, set())
        self.assertLessEqual(
            {"Sql.expression", "ConsumerStats.in_flight", "errors.RocketMQError.retriable"}, self.shown
        )
        internals = {"MessageQueue.encode", "MessageQueue.decode", "Message.check", "Message.wire_properties"}
        self.assertEqual(internals & self.shown, set())

    def test_constructors_have_the_parameters_of_python(self):
        kinds = {f"{face}.{name}": getattr(FACES[face], name) for face, name in product(FACES, CLIENTS)}
        kinds |= {name: getattr(client, name) for name in (*CLIENTS, "ClientConfig", "FlowLimits", "Sql", "TlsConfig")}
        for name, kind in kinds.items():
            expected = {field.name for field in fields(kind)}
            self.assertEqual({parameter.name for parameter in self.parameters(name)}, expected, name)
        for kind in (client.Message, client.MessageQueue, client.SendResult, client.TransactionSendResult):
            shown = [parameter.name for parameter in self.parameters(kind.__name__)]
            self.assertEqual(shown, list(kind.__struct_fields__))
        kinds = {parameter.name: parameter.kind.value for parameter in self.parameters("ConsumeMessageContext")}
        self.assertEqual(kinds["success"], "keyword-only")
        self.assertTrue(self.handler.get_options({}).merge_init_into_class)

    def test_client_has_docstring_of_its_face_and_setting_its_default_and_docstring(self):
        self.assertIn("``cluster`` is the name servers", self.described("sync.Producer").docstring.value)
        mode = self.described("TlsConfig.server_mode")
        self.assertEqual(mode.value, "'permissive'")
        self.assertIn("enforcing refuses plain connections", mode.docstring.value)
