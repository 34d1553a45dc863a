"""The errors of type checkers for right and wrong calls: `python -m tests.typecheck`.

Not named `typing`: scripts run from tests/ would import it instead of the real one.
"""
