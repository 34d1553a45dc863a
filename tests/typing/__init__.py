"""What type checkers say of right and wrong calls: `python -m tests.typing`."""
