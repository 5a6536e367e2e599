"""Bounds that are theorems: one table a command.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/verify.py TABLE [--quick] [--data FOLDER]

`sdplib` and `exact` read ``FOLDER/sdplib/*.dat-s.gz``. The table of a full run goes to
benchmarks/results/verify_TABLE.md.
"""

from chapter import print_table

if __name__ == "__main__":
    print_table("verify", ("sdplib", "families", "exact"), __doc__)
