"""The log-det family: completions, covariance selection, sparse inverses, ellipsoids and designs."""
