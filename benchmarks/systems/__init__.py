"""One adapter for each system, imported only in that system's virtual environment."""
