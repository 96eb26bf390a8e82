"""The guide of the Python client, with a page for each subject."""

from tests.support.places import ROOT

PAGES = tuple(
    ROOT / "docs" / "howto" / f"{name}.md"
    for name in (
        *(
            "python-client",
            "client-sending",
            "client-consuming",
            "client-processes",
            "client-observing",
            "client-options",
            "mqadmin",
        ),
    )
)
"""In reading order."""


def guide_text() -> str:
    """Return the text of all pages."""
    return "\n".join(page.read_text() for page in PAGES)
