"""The file of a certificate: what it holds, its form, and the statement for the checker."""
