"""How Sphinx builds the pages: ``make docs``."""

import warnings

import reliance

project = "reliance"
author = "The reliance developers"
copyright = "The reliance developers, BSD-3-Clause"
release = version = reliance.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "auto_examples/*.ipynb", "auto_examples/*.py"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
html_theme = "pydata_sphinx_theme"
html_title = "reliance"
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # the theme reports an error to the console of who never chose one
html_sidebars = {"**": ["sidebar-nav-bs"]}
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "pygments_light_style": "tango"}

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types and shapes
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # all of them are run
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 10_000,
    "show_memory": False,
    "capture_repr": ("_repr_html_",),  # results as tables; the Axes that a plot returns say nothing beside their figure
    "remove_config_comments": True,
}
# What an example says to its reader is not the build's business.
warnings.filterwarnings("ignore", category=UserWarning, module="reliance")
