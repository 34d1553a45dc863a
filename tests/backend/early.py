"""A function for a task that is made before Django is set up."""


def early() -> None:
    """Do nothing."""
