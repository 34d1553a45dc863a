"""Measurements, outside the tests: ratios of systems run in turn, side by side."""
