"""The built site in a real browser: ``make browser``. It needs Chromium, and ``make docs`` before.

A page of the test holds a page of the site in a frame of the width of a desktop or a phone, measures it, and
writes what it saw into its own document, which Chromium prints.
"""

import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SITE = Path(os.environ.get("BREGOPT_TEST_SITE", DOCS / "_build" / "html"))
sys.path.insert(0, str(DOCS))
import pages  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGES = [
    "index.html",
    "getting-started.html",
    "gallery/index.html",
    "gallery/correlation/repair_stocks.html",
    "reference/index.html",
    "reference/generated/bregopt.nearest_correlation.html",
]
WIDTHS = {"desktop": 1280, "phone": 390}
# What people type, and the page that they want: it is among the first three.
QUERIES = {
    "nearPD": "bregopt.nearest_correlation",
    "cov_nearest": "bregopt.nearest_covariance",
    "corr_nearest": "bregopt.nearest_correlation",
    "nearcorr": "bregopt.nearest_correlation",
    "nearest correlation": "bregopt.nearest_correlation",
    "Ledoit-Wolf": "bregopt.shrink_correlation",
    "shrinkage": "bregopt.shrink_correlation",
    "factor model": "bregopt.factor_correlation",
    "glasso": "bregopt.graphical_lasso",
    "precision matrix": "bregopt.graphical_lasso",
    "robust portfolio": "how-to",
    "min-bisection": "bregopt.min_balanced_cut",
    "METIS": "bregopt.min_balanced_cut",
    "Goemans-Williamson": "bregopt.max_cut",
    "max_cut": "bregopt.max_cut",
    "modularity": "bregopt.communities",
    "QUBO": "bregopt.qubo",
    "dnorm": "quantum/index",
    "diamond norm": "quantum/index",
    "key rate": "bregopt.key_rate",
    "ITML": "bregopt.learn.LogDetMetricLearner",
    "metric-learn": "learning/index",
    "LMNN": "bregopt.learn.SoftMarginMetricLearner",
    "YALMIP": "how-to",
    "MOSEK": "semidefinite/cvxpy-solver",
    "SDPA": "bregopt.read_sdpa",
    "MVEE": "bregopt.min_volume_ellipsoid",
    "experimental design": "bregopt.d_optimal",
    "parallel": "bregopt.solve_many",
    "infeasible": "semidefinite/explaining",
}
FRAME = """<!doctype html><iframe id="page" width="{width}" height="800" src="{source}"></iframe>
<pre id="seen"></pre>
<script>
const page = document.getElementById("page"), errors = [];
page.contentWindow.addEventListener("error", event => errors.push(String(event.message)));
page.addEventListener("load", () => setTimeout(() => {{
  const shown = page.contentDocument;
  document.getElementById("seen").textContent = JSON.stringify({{
    title: shown.title, errors: errors, width: shown.documentElement.scrollWidth,
    sideways: [...shown.querySelectorAll("pre")].filter(one => one.scrollWidth > one.clientWidth + 1).length,
    missing: [...shown.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src),
    found: [...shown.querySelectorAll("ul.search li")].map(item => item.textContent),
    pages: [...shown.querySelectorAll("ul.search li a")].map(link => link.href),
    code: Math.min(...[...shown.querySelectorAll("pre")].map(one => one.getBoundingClientRect().bottom)),
    uncopied: [...shown.querySelectorAll("div.highlight")]
      .filter(one => !one.querySelector("button.copybtn")).length,
  }});
}}, {wait}));
</script>"""


def in_browser(test):
    """Mark a test that needs Chromium and the built site."""
    test = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")(test)
    built = (SITE / "index.html").exists()
    return pytest.mark.slow(pytest.mark.skipif(not built, reason="the site is not built: make docs")(test))


def test_the_pages_have_the_words_that_people_type():
    uses = pages.uses()
    for query, page in QUERIES.items():
        if page in uses:
            assert query.replace(" ", "_") in page or query in uses[page][1], query
        else:
            index = re.search(r"```\{index\} (.*)", (DOCS / f"{page}.md").read_text())[1]
            assert query in [word.strip(" !") for word in index.split(",")], query


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and a frame around any of its pages."""

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path != "/frame":
            super().do_GET()
            return
        asked = dict(urllib.parse.parse_qsl(address.query))
        body = FRAME.format(width=int(asked["width"]), source=html.escape(asked["page"]), wait=1500).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(Handler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def seen(address, page, width, tmp_path):
    """Return what the frame measured, and the lines of the browser's console."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    options += ["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"]
    options += [f"--user-data-dir={tmp_path}", "--window-size=1400,900", "--virtual-time-budget=8000"]
    query = urllib.parse.urlencode({"page": "/" + page, "width": width})
    run = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", f"{address}/frame?{query}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, re.DOTALL)
    assert printed, run.stderr[-2000:]
    return json.loads(html.unescape(printed[1])), re.findall(r"CONSOLE.*", run.stderr)


@in_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_shown_without_errors(address, page, width, tmp_path):
    found, console = seen(address, page, WIDTHS[width], tmp_path)
    assert "bregopt" in found["title"]
    assert not found["errors"]
    assert not console
    assert not found["missing"]
    assert found["width"] <= WIDTHS[width]
    assert not found["uncopied"]
    if width == "phone":
        assert not found["sideways"]
    if page == "index.html":
        assert found["code"] < 800  # the first screen shows code


@in_browser
def test_the_search_finds_pages_with_excerpts(address, tmp_path):
    found, _ = seen(address, "search.html?q=correlation", WIDTHS["desktop"], tmp_path)
    assert len(found["found"]) > 5
    assert max(map(len, found["found"])) > 100


@in_browser
@pytest.mark.parametrize("query", QUERIES)
def test_the_search_finds_what_people_type(address, tmp_path, query):
    found, _ = seen(
        address, f"search.html?{urllib.parse.urlencode({'q': query})}", WIDTHS["desktop"], tmp_path
    )
    first = list(
        dict.fromkeys(urllib.parse.urlsplit(link).path.removesuffix(".html") for link in found["pages"])
    )
    assert any(path.endswith("/" + QUERIES[query]) for path in first[:3]), first[:8]


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.targets, self.anchors = [], set()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "a" and given.get("href"):
            self.targets.append(given["href"])
        if given.get("id"):
            self.anchors.add(given["id"])


@in_browser
def test_every_link_within_the_site_leads_somewhere():
    pages = {path: Links() for path in SITE.rglob("*.html") if "_static" not in path.parts}
    for path, links in pages.items():
        links.feed(path.read_text())
    for path, links in pages.items():
        for target in links.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            assert to.exists(), f"{path.relative_to(SITE)} links to {target}"
            if parts.fragment and to in pages:
                anchors = pages[to].anchors
                assert parts.fragment in anchors, f"{path.relative_to(SITE)} links to {target}"
