"""Tables of the pages, compared with those that their scripts print."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import pages


def shown(script):
    """Return the tables of the pages that name a script as their source."""
    found = [made for page in pages.PAGES for made in pages.MADE.finditer(page.read_text())]
    return [made["table"] for made in found if f"/{script}.py" in made["command"]]


def assert_like_the_pages(script, text):
    """Assert that the tables of a small run have columns and rows of the pages' tables."""
    printed, on_pages = pages.TABLE.findall(text), shown(script)
    assert len(printed) == len(on_pages)
    for a, b in zip(printed, on_pages, strict=True):
        assert set(_plain(pages.titles(a))) <= set(_plain(pages.titles(b)))
        assert {row for row in _labels(a) if not row[0].isdigit()} <= set(_labels(b))


def assert_on_the_pages(script, text):
    """Assert that a full run prints the tables of the pages, with numbers equal to the digits shown."""
    printed, on_pages = pages.TABLE.findall(text), shown(script)
    assert len(printed) == len(on_pages)
    for a, b in zip(printed, on_pages, strict=True):
        assert pages.titles(a) == pages.titles(b)
        lines = zip(_rows(b), _rows(a), strict=True)
        assert not [(old, new) for old, new in lines if not pages.agree([], old, new, ())]


def _plain(words):
    """Return titles with their numbers replaced by #."""
    return [re.sub(r"\d+", "#", word) for word in words]


def _rows(table):
    return table.splitlines()[2:]


def _labels(table):
    return [pages.titles(row)[0] for row in _rows(table)]
