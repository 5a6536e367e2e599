"""The refusal of problems that a file format for conic problems cannot state."""

from __future__ import annotations

import numpy as np

from bregopt.program import Program

__all__ = ["check_linear"]


def check_linear(program: Program, file: str) -> None:
    """Refuse a program with a divergence, a bound on eigenvalues or a soft row; `file` is the kind of file.

    Raises
    ------
    ValueError
        The message names the term or row.
    """
    for block, divergence in zip(program.blocks, program.divergences, strict=True):
        if divergence is not None:
            raise ValueError(
                f"the objective has the {divergence} divergence of {block.name}; "
                f"{file} takes linear objectives only"
            )
        if block.cap is not None:
            raise ValueError(
                f"lambda_max({block.name}) <= {block.cap:g} is no row; {file} takes rows only. Declare "
                f"S = bo.PSD({block.n}) and the rows {block.name} + S == {block.cap:g} * np.eye({block.n})"
            )
    soft = np.flatnonzero(~program.bounds.hard)
    if len(soft):
        raise ValueError(f"{program.row_name(int(soft[0]))} is soft; {file} takes hard rows only")
