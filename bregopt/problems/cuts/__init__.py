"""Cuts and partitions of graphs: a search for good ones, and bounds on all of them."""
