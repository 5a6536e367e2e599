"""The text of a CBF file, parsed and checked: every error names its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bregopt.arrays import LARGEST
from bregopt.errors import did_you_mean
from bregopt.files import read_bytes, unpacked
from bregopt.io.cbf_format import COLUMNS, LINEAR, SECOND_ORDER, Cbf, Entries
from bregopt.io.lines import Lines, number
from bregopt.memory import check_memory

__all__ = ["parsed"]

_VERSIONS = (1, 2, 3, 4)  # a later version has more cones, which are refused by name
_LARGEST_COUNT, _LARGEST_ORDER = 2**53, 2**31 - 1
# Bytes for each row and scalar (bounds, a column and its numbers), for each entry of a matrix constraint, and
# for each row of a matrix variable, whose entries are not read.
_ROW, _ENTRY, _ORDER = 100, 100, 16
_OTHERS = {
    "INT": "integer variables, which are not convex",
    "CHANGE": "a second instance in one file",
    "POWCONES": "power cones",
    "POW*CONES": "dual power cones",
}


def parsed(path: Path) -> Cbf:
    """Return the content of a CBF file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no such file, has other cones, or does not fit in memory; the message names the line.
    """
    raw = read_bytes(path)
    if path.suffix.lower() == ".gz":
        raw = unpacked(path, raw)
    text = raw.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    lines = ["" if line.startswith("#") else line.strip() for line in text.rstrip().split("\n")]
    if not any(lines):
        raise ValueError(f"{path} is empty; expected a problem in the Conic Benchmark Format")
    return _Parser(Lines(path, lines)).cbf()


class _Parser:
    """Reads the sections of a file one after the other."""

    def __init__(self, source: Lines) -> None:
        self._source = source
        self._written = source.written(0)  # the indices of lines with content
        self._at = 0  # the next of these
        self._cbf = Cbf()
        self._lines: dict[str, list[int]] = {}  # of the entries of each section

    def cbf(self) -> Cbf:
        """Return the content of the file."""
        sections: dict[str, Callable[[str], None]] = {
            "VER": self._version,
            "OBJSENSE": self._sense,
            "PSDVAR": self._orders,
            "PSDCON": self._orders,
            "VAR": self._cones,
            "CON": self._cones,
            "OBJBCOORD": self._constant,
            **dict.fromkeys(COLUMNS, self._coordinates),
            **dict.fromkeys(_OTHERS, self._refused),
        }
        read: dict[str, int] = {}
        while self._at < len(self._written):
            line, keyword = self._next("a keyword")
            if keyword not in sections:
                raise self._source.error(line, repr(keyword), f"a keyword{did_you_mean(keyword, sections)}")
            if keyword in read:
                raise self._source.error(line, f"{keyword} as on line {read[keyword] + 1}", "it once")
            if not read and keyword != "VER":
                raise self._source.error(line, f"{keyword!r}", "VER first")
            read[keyword] = line
            sections[keyword](keyword)
        for keyword in COLUMNS:
            if keyword in self._lines:
                self._check_entries(keyword)
        return self._cbf

    def _next(self, expected: str) -> tuple[int, str]:
        """Return the index of the next line with content, and the line."""
        if self._at == len(self._written):
            raise self._source.error(self._written[-1], "the file ends here", f"{expected} after it")
        line = self._written[self._at]
        self._at += 1
        return line, self._source.lines[line]

    def _integers(
        self, names: tuple[str, ...], least: int = 0, most: int = _LARGEST_COUNT
    ) -> tuple[int, tuple[int, ...]]:
        """Return the index of the next line, and its integers, one for each name."""
        expected = " and ".join(names)
        line, text = self._next(expected)
        try:
            found = [number(word) for word in text.split()]
        except ValueError:
            raise self._source.error(line, repr(text), expected) from None
        if len(found) != len(names) or not all(x.is_integer() for x in found):
            raise self._source.error(line, repr(text), expected)
        for x in found:
            if not least <= x <= most:
                raise self._source.error(line, f"{x:.0f}", f"{expected}, {least} to {most}")
        return line, tuple(int(x) for x in found)

    def _version(self, _: str) -> None:
        line, (version,) = self._integers(("the version",))
        if version not in _VERSIONS:
            raise self._source.error(line, f"version {version}", f"1 to {_VERSIONS[-1]}")

    def _sense(self, _: str) -> None:
        line, word = self._next("MIN or MAX")
        if word not in ("MIN", "MAX"):
            raise self._source.error(line, repr(word), "MIN or MAX")
        self._cbf.maximize = word == "MAX"

    def _orders(self, keyword: str) -> None:
        line, (count,) = self._integers((f"the number of matrices of {keyword}",))
        self._check_count(line, count)
        orders: list[int] = []
        for _ in range(count):
            name = (f"the order of a matrix of {keyword}",)
            line, (order,) = self._integers(name, least=1, most=_LARGEST_ORDER)
            needed = _ENTRY * order**2 if keyword == "PSDCON" else _ORDER * order
            self._check_memory(line, needed, f"a matrix of {keyword} of order {order}")
            orders.append(order)
        if keyword == "PSDVAR":
            self._cbf.psdvar = orders
        else:
            self._cbf.psdcon = orders

    def _cones(self, keyword: str) -> None:
        line, (size, count) = self._integers((f"the size of {keyword}", "the number of its cones"))
        self._check_count(line, count)
        self._check_memory(line, _ROW * size, f"the {size} elements of {keyword}")
        cones = [self._cone(keyword) for _ in range(count)]
        total = sum(own for _, own in cones)
        if total != size:
            found = f"{keyword} has the size {size}, but its cones {total}"
            raise self._source.error(line, found, "the same number")
        if keyword == "VAR":
            self._cbf.var = cones
        else:
            self._cbf.con = cones

    def _cone(self, keyword: str) -> tuple[str, int]:
        line, text = self._next(f"a cone of {keyword} and its size")
        words = text.split()
        known = (*LINEAR, *SECOND_ORDER)
        if len(words) != 2 or not words[1].isdecimal():
            raise self._source.error(line, repr(text), f"a cone of {keyword} and its size")
        if words[0] not in known:
            raise self._source.error(line, f"the cone {words[0]}", f"one of {', '.join(known)}")
        least = {"Q": 1, "QR": 2}.get(words[0], 0)
        if int(words[1]) < least:
            raise self._source.error(line, f"a cone {words[0]} of size {words[1]}", f"at least {least}")
        return words[0], int(words[1])

    def _constant(self, _: str) -> None:
        line, text = self._next("the constant of the objective")
        (value,) = self._source.table([line], ("the constant of the objective",))[0]
        if not abs(value) <= LARGEST:
            raise self._source.error(line, text, f"a finite number, of magnitude {LARGEST:g} at most")
        self._cbf.constant = float(value)

    def _refused(self, keyword: str) -> None:
        line = self._written[self._at - 1]
        if keyword == "INT" and self._integers(("the number of integer variables",))[1] == (0,):
            return
        raise self._source.error(line, f"{keyword}: {_OTHERS[keyword]}", "a convex problem without them")

    def _coordinates(self, keyword: str) -> None:
        line, (count,) = self._integers((f"the number of entries of {keyword}",))
        self._check_count(line, count)
        which = self._written[self._at : self._at + count]
        self._at += count
        columns = COLUMNS[keyword]
        table = self._source.table(which, columns) if count else np.zeros((0, len(columns)))
        self._refuse(
            which, ~(np.abs(table) <= LARGEST).all(axis=1), "numbers that are not finite or too large"
        )
        self._refuse(which, (table[:, :-1] % 1 != 0).any(axis=1), "an index that is no integer")
        index = {name: table[:, k].astype(np.intp) for k, name in enumerate(columns[:-1])}
        self._cbf.entries[keyword] = Entries(index, table[:, -1])
        self._lines[keyword] = which

    def _check_count(self, line: int, count: int) -> None:
        left = len(self._written) - self._at
        if count > left:
            raise self._source.error(line, f"{count} lines, but {left} follow in the file", "as many lines")

    def _check_memory(self, line: int, needed: float, name: str) -> None:
        check_memory(needed, f"{self._source.path}, line {line + 1}: {name}")

    def _refuse(self, which: list[int], bad: Any, found: str, expected: str = "an entry without") -> None:
        """Raise an error for the first entry that is bad."""
        if np.any(bad):
            line = which[int(np.argmax(bad))]
            text = self._source.lines[line]
            raise self._source.error(line, f"{text!r} has {found}", f"{expected}")

    def _check_entries(self, keyword: str) -> None:
        """Refuse indices that do not exist, and places that are given twice."""
        which, index = self._lines[keyword], self._cbf.entries[keyword].index
        limits = self._limits(keyword)
        for name, limit in limits.items():
            bad = (index[name] < 0) | (index[name] >= limit)
            most = np.broadcast_to(limit, bad.shape)[bad][:1]
            expected = f"0 to {int(most[0]) - 1}" if len(most) and most[0] > 0 else "none"
            found = f"{name} {index[name][bad][0]}" if len(most) else ""
            self._refuse(which, bad, found, expected)
        places = np.array([part for name, part in index.items() if name not in ("row", "column")])
        if "row" in index:
            ends = np.sort([index["row"], index["column"]], axis=0)  # a place and its mirror image are one
            places = np.concatenate([places, ends])
        order = np.lexsort((np.array(which, dtype=np.intp), *places))
        twice = np.zeros(len(which), dtype=bool)
        twice[order[1:]] = (places[:, order[1:]] == places[:, order[:-1]]).all(axis=0)
        self._refuse(which, twice, "a place that a line before it has", "each entry once, in one triangle")

    def _limits(self, keyword: str) -> dict[str, Any]:
        """Return the numbers of what each index of a section counts."""
        cbf, index = self._cbf, self._cbf.entries[keyword].index
        matrices = cbf.psdcon if keyword in ("HCOORD", "DCOORD") else cbf.psdvar
        rows = len(cbf.psdcon) if keyword in ("HCOORD", "DCOORD") else sum(size for _, size in cbf.con)
        limits: dict[str, Any] = {
            "con": rows,
            "psd": len(cbf.psdvar),
            "var": sum(size for _, size in cbf.var),
        }
        found = {name: limits[name] for name in index if name in limits}
        if "row" in index and len(index["row"]):
            owner = index["psd" if "psd" in index else "con"]
            orders = np.array([*matrices, 0])[np.clip(owner, 0, len(matrices))]
            found |= {"row": orders, "column": orders}
        return found
