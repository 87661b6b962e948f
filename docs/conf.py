"""The settings of Sphinx, which builds the pages of this folder: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "replog"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click", "extension"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "replog"
# Nothing is fetched from elsewhere, neither while the pages are built nor while they are read.
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Docstrings have code between single backticks, as Markdown does.
default_role = "code"
smartquotes = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
# References to the types of Python and of other packages, whose pages are not here, and to our inner ones.
nitpick_ignore_regex = [("py:.*", r"(?!replog\.).*")]
