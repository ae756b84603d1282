"""Benchmarks: every algorithm against a sequential C program and peers, in one run (`nbmf bench`).

A machine that does other things makes absolute times useless, so C and ours take turns on the same
core and the same data, and the ratio of their best times is what counts.
"""
