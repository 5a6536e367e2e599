"""The terms that give a matrix without a divergence one (:mod:`bregopt.routes.projection.proximal`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import Array
from bregopt.program import Block, Nearness, Program

__all__ = ["with_proximal_terms"]


def with_proximal_terms(program: Program, at: tuple[Array, ...] | None = None, mu: float = 1.0) -> Program:
    """Return the program with ``mu ||Z - Z_k||^2`` for matrices without a divergence; ``Z_k`` is in `at`."""
    if None not in program.divergences:
        return program

    def with_term(b: int, block: Block) -> Block:
        if block.nearness is not None:
            return block
        Z = np.zeros((block.n, block.n)) if at is None else at[b]
        return replace(block, nearness=Nearness("frobenius", Z, mu))

    return replace(program, blocks=tuple(with_term(b, block) for b, block in enumerate(program.blocks)))
