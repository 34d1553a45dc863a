"""Sphinx builds these pages: `python -m sphinx -W docs docs/_build/html`."""

import re
from pathlib import Path

_package = Path(__file__).parent.parent / "django_jobqueue" / "__init__.py"
_version = re.search(r'^__version__ = "(.+)"$', _package.read_text(), re.MULTILINE)
assert _version

project = "django-jobqueue"
author = "The django-jobqueue authors"
project_copyright = author
version = release = _version[1]

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
# Each heading can be linked to: settings.md#retention.
myst_heading_anchors = 4

# Messages and code stand in the text as they are.
smartquotes = False

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
