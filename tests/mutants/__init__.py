"""Seeded bugs: each breaks one rule of the design, and the tests must notice.

catalogue.py lists them, running.py tries them in scratch copies, `make mutants` runs
it. tests/test_mutants.py looks that every one still fits the code.
"""
