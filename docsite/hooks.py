"""Hooks of MkDocs: the site has the layout of the repository, and its navigation is the index in docs/README.md.

So Markdown links lead to the same files on the site, in a clone and on a forge. A link to a directory without a README
leads to a generated list of its files.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"
PATTERNS = ("*.md", "LICENSE", "benchmarks/README.md", "docs/**/*", "etc/**/*", "examples/*", "docsite/*.css")
"""Pages of the site, and files for download."""
FOR_MAINTAINERS = "docs/internal/"
"""Folder that is left out of the site."""

NavItem = str | dict[str, "str | list[NavItem]"]

_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(
    r"""<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>\S+)">"""
    r"""\s*<img alt="(?P<text>[^"]*)" src="(?P<light>\S+)"(?: width="(?P<width>\d+)")?>\s*</picture>"""
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation, and watch the pages outside of docs/ while `mkdocs serve` runs."""
    config.nav = navigation((ROOT / INDEX).read_text())
    config.watch = [
        str(ROOT / name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks", "examples")
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of the repository, under their paths there. Keep those of the theme."""
    found = Files([file for file in files if not file.src_dir or Path(file.src_dir) != Path(config.docs_dir)])
    for path in repository_files():
        found.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for directory in listed_directories():
        found.append(File.generated(config, f"{directory}/README.md", content=listing(directory)))
    return found


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to a directory lead to its README, and pictures follow the palette of the site."""
    return with_both_pictures(with_readmes(markdown, page.file.src_uri))


def navigation(index: str) -> list[NavItem]:
    """Return the navigation: the README, then under each heading of the index the pages that it links first there."""
    seen = {"README.md"}
    items: list[NavItem] = ["README.md"]
    for section in re.split(r"(?m)^## ", index)[1:]:
        pages: list[NavItem] = []
        for target, _ in _LINK.findall(with_readmes(section, INDEX)):
            path = normpath(join(dirname(INDEX), target))
            if path.endswith(".md") and "://" not in target and path not in seen:
                seen.add(path)
                pages.append(path)
        items.append({section.partition("\n")[0]: pages})
    return items


def repository_files(root: Path = ROOT) -> list[str]:
    """Return the paths of the site's files: those that git tracks. A source archive has no repository, and all are taken."""
    found = tracked_files(root) if (root / ".git").exists() else unpacked_files(root)
    return sorted({path for path in found if (root / path).is_file() and not path.startswith(FOR_MAINTAINERS)})


def tracked_files(root: Path) -> list[str]:
    """Return the paths that git tracks."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", *(f":(glob){pattern}" for pattern in PATTERNS)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


def unpacked_files(root: Path) -> Iterator[str]:
    """Return the paths of a source archive, without hidden files and compiled modules."""
    for pattern in PATTERNS:
        for path in root.glob(pattern):
            relative = path.relative_to(root)
            if not any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
                yield relative.as_posix()


def listed_directories() -> list[str]:
    """Return the directories of etc/, which need a list of their files."""
    parents = {parent.as_posix() for path in repository_files() for parent in PurePosixPath(path).parents}
    return sorted(parent for parent in parents if parent == "etc" or parent.startswith("etc/"))


def listing(directory: str) -> str:
    """Return a page, in Markdown, with the files of a directory."""
    below = [path.removeprefix(f"{directory}/") for path in repository_files() if path.startswith(f"{directory}/")]
    names = sorted({name + separator for name, separator, _ in (path.partition("/") for path in below)})
    return f"# {directory}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)


def with_readmes(markdown: str, path: str) -> str:
    """Return the text of a page with each link to a directory of the repository changed to the README in there."""

    def readme(link: re.Match[str]) -> str:
        target = link[1]
        is_directory = "://" not in target and (ROOT / dirname(path) / target).is_dir()
        return f"]({target.rstrip('/')}/README.md{link[2] or ''})" if is_directory else link[0]

    return _LINK.sub(readme, markdown)


def with_both_pictures(markdown: str) -> str:
    """Return the text with each picture for two palettes changed to two images. The theme shows one of them."""

    def images(picture: re.Match[str]) -> str:
        width = f"{{ width={picture['width']} }}" if picture["width"] else ""
        return "\n".join(
            f"![{picture['text']}]({picture[scheme]}#only-{scheme}){width}" for scheme in ("light", "dark")
        )

    return _PICTURE.sub(images, markdown)
