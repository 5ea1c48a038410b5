"""Fidelity: what we compute offline against what the real API server and the real scheduler do.

Everything is drawn from one seed, which every failure names. ``ALLOCGUARD_FIDELITY=N`` makes each test N times as
large (1: what CI runs), ``ALLOCGUARD_FIDELITY_SEED`` draws others.
"""
