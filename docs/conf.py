"""How Sphinx builds the pages: ``make docs``."""

import importlib.util
import sys
import warnings
from pathlib import Path

import reliance

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

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
    "matplotlib.sphinxext.plot_directive",
    "name_links",
]
exclude_patterns = ["_build", "_ext", "figures", "auto_examples/*.ipynb", "auto_examples/*.py"]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

html_theme = "pydata_sphinx_theme"
html_title = "reliance"
html_static_path = ["_static"]
html_css_files = ["reliance.css"]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # the theme reports an error to the console of who never chose one
html_sidebars = {"index": [], "**": ["sidebar-nav-bs"]}  # the home page stands in no section
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "pygments_light_style": "tango",
    "footer_start": ["copyright"],
    "footer_end": [],
}

# MathJax in one file, fonts included, from a package that ships it: pages show formulas without a network.
_mathjax = importlib.util.find_spec("sphinx-mathjax-offline")
if _mathjax is None or not _mathjax.submodule_search_locations:
    raise ImportError("formulas need MathJax: pip install sphinx-mathjax-offline, or make docs, which does that")
html_static_path.append(str(Path(_mathjax.submodule_search_locations[0], "static", "mathjax", "tex-svg.js")))
mathjax_path = "tex-svg.js"
mathjax3_config: dict[str, object] = {}

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types and shapes
numpydoc_show_class_members = False  # the template of classes lists them

# A name in the code font that cannot be found is an error, as is a dead link: see check_site.py for the built pages.
nitpicky = True
default_role = "py:obj"
nitpick_ignore = [("py:class", "contextlib.nullcontext")]  # the value of a default; Python's pages are not loaded

plot_formats = [("png", 120)]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_include_source = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # all of them are run
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,  # its page loads scripts from the network
    "min_reported_time": 10_000,
    "show_memory": False,
    "capture_repr": ("_repr_html_",),  # results as tables; the Axes that a plot returns say nothing beside their figure
    "remove_config_comments": True,
}
# What an example says to its reader is not the build's business.
warnings.filterwarnings("ignore", category=UserWarning)
