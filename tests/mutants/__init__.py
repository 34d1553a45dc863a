"""Seeded bugs: each breaks one rule of the design, and a test must fail.

catalogue/ lists them, running.py applies each in a scratch copy and runs its tests;
`make mutants` runs all. tests/test_mutants.py checks that each still applies.
"""
