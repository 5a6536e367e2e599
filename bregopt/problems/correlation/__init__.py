"""The correlation chapter: problems beside the nearest correlation matrix, one file each."""
