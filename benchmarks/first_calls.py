"""CPU time of `import bregopt` and of a first call, by two versions in turns: ``first_calls.py BASE [HEAD]``.

A version is a commit or a folder, as for compare.py. Each measurement is a new process with one BLAS thread,
which reads the bytecode that an earlier one wrote, as those of users do. The table has the medians over the
rounds, of times and of ratios, and the quartiles of the ratios.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import threads
from compare import HEAD, checkout, row

GIVEN = "A = np.eye(20) + 0.9 * (np.ones((20, 20)) - np.eye(20)); A[0, 1] = A[1, 0] = -0.5; X = bo.PSD(20)"
ROWS = "lambda X: bo.diag(X) == 1"
CALLS = {
    "nearest_correlation": "bo.nearest_correlation(A)",
    "nearest_psd, Frobenius": f"bo.nearest_psd(A, {ROWS})",
    "nearest_psd, LogDet": f"bo.nearest_psd(np.eye(20) + 0.1, {ROWS}, divergence='logdet')",
    "nearest_psd, von Neumann": f"bo.nearest_psd(np.eye(20) + 0.1, {ROWS}, divergence='von_neumann')",
    "max_cut": "bo.max_cut(1 - np.eye(20))",
    "a semidefinite program": "bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.diag(X) == 1]).solve()",
}
CODE = """
import json, time
begin = time.process_time()
import numpy as np, bregopt as bo
imported = time.process_time()
{given}
ready = time.process_time()
{call}
print(json.dumps([bo.__file__, imported - begin, time.process_time() - ready]))
"""


def measured(folder, call):
    """Return the CPU seconds of the import and of the call in a new process."""
    environment = os.environ | dict.fromkeys(threads.VARIABLES, "1") | {"PYTHONPATH": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = CODE.format(given=GIVEN, call=call)
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    source, *seconds = json.loads(found.stdout)
    if not Path(source).is_relative_to(folder):
        sys.exit(f"Python imports bregopt from {source}, not from {folder}.")
    return seconds


def main():
    """Measure both versions, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="a commit or a folder")
    parser.add_argument("head", nargs="?", default=".", help="a commit or a folder; default: this folder")
    parser.add_argument("--rounds", type=int, default=9, help="processes of each version for each call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        names = ("base", options.base), ("head", options.head)
        folders = [checkout(version, Path(scratch) / side) for side, version in names]
        lines, imports = [], []
        for name, call in CALLS.items():
            for folder in folders:
                measured(folder, call)  # it writes the bytecode
            pairs = [[measured(folder, call) for folder in folders] for _ in range(options.rounds)]
            imports += [(a[0], b[0], b[0] / a[0]) for a, b in pairs]
            lines.append(row(f"first {name}", [(a[1], b[1], b[1] / a[1]) for a, b in pairs])[0])
            sums = [(sum(a), sum(b), sum(b) / sum(a)) for a, b in pairs]
            lines.append(row(f"import and first {name}", sums)[0])
    print(HEAD + "\n".join([row("import bregopt", imports)[0], *lines]))


if __name__ == "__main__":
    main()
