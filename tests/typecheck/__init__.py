"""What type checkers say of right and wrong calls: `python -m tests.typecheck`.

Not named `typing`: scripts that are run from tests/ would import it for the real one.
"""
