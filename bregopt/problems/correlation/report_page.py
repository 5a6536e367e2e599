"""A report as a page of HTML that stands alone."""

from __future__ import annotations

import base64
import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bregopt.errors import require
from bregopt.tables import escaped

if TYPE_CHECKING:
    from bregopt.problems.correlation.answer import CorrelationSolution
    from bregopt.problems.correlation.report import CorrelationReport

__all__ = ["page_of"]

_SHOWN = 50  # rows of a table
_DPI = 110
_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1.2rem 0 }
caption { font-weight: 600; padding: .3rem 0 }
td, th { padding: .15rem .9rem .15rem 0; border-bottom: 1px solid #ddd }
td { font-variant-numeric: tabular-nums }
img { max-width: 100% }"""


def page_of(report: CorrelationReport, solution: CorrelationSolution) -> str:
    """Return the page, with the plot if matplotlib is installed."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escaped(report.title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        f"{_plot(solution)}\n{report.html(_SHOWN)}\n</body>\n</html>\n"
    )


def _plot(solution: CorrelationSolution) -> str:
    """Return the plot as an image inside the page."""
    if find_spec("matplotlib") is None:
        return "<p>For the plot: pip install 'bregopt[plot]'</p>"
    pyplot = require("matplotlib.pyplot", "plot")
    with pyplot.rc_context({"interactive": False}):
        figure = solution.plot()[0].figure
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=_DPI)
        pyplot.close(figure)
    image = base64.b64encode(data.getvalue()).decode("ascii")
    return f'<img alt="before, after, change and spectra" src="data:image/png;base64,{image}">'
