"""Benchmarks, outside the test run: ratios between systems measured in one run."""
