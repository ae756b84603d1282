"""Benchmarks: every algorithm against a sequential C program and peers, in one run (`nbmf bench`).

Absolute times mean little on a machine that also does other work. Therefore the C program and our
algorithm take turns on the same core and the same data, and the ratio of their best times counts.
"""
