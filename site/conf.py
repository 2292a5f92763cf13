"""Sphinx's settings; `build.py` says which pages there are."""

project = "dpduck"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "dpduck"
html_show_copyright = html_show_sphinx = False
html_copy_source = False
suppress_warnings = ["misc.highlighting_failure"]  # SQL in $$ .. $$ is none of the highlighter's
