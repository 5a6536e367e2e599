"""The log-det family beside its peers: one table a command.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/logdet.py TABLE [--quick] [--data FOLDER]

Calls take turns; ratios are medians of the ratios of the turns. A peer that is not installed is left out.
The table of a full run goes to benchmarks/results/logdet_TABLE.md.
"""

from chapter import print_table

if __name__ == "__main__":
    print_table("logdet", ("designs", "ellipsoids", "completion", "lasso", "logarithms"), __doc__)
