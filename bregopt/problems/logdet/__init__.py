"""Problems of the log-determinant family, one file each."""
