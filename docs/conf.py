"""Settings of the site: ``make docs`` builds it without a network."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from steelyard import __version__ as release
from steelyard.datasets import data_folder

project, author, copyright = "Steelyard", "the Steelyard team", "the Steelyard team"
version = release
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "commands",
    "mathml",
    "plots_in_markdown",
    "results",
    "public_names",
    "repository_files",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline", "substitution"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "**sg_execution_times.rst"]  # whose page loads scripts from the network
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_show_search_summary = False  # it would be fetched, which pages from the file system cannot do
html_context = {"default_mode": "auto"}  # light or dark, as the system of the reader is set
html_favicon = "_static/favicon.svg"
html_sidebars = {"index": [], "start": [], "which_method": [], "errors": []}
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo-dark.svg", "text": "Steelyard"},
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
}
default_role = "literal"
suppress_warnings = ["ref.term"]  # of the glossary of scikit-learn, in docstrings that are inherited from it
autodoc_typehints = "none"
numpydoc_show_class_members = False
plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 110)]
plot_rcparams = {
    "figure.figsize": (7, 3.2),
    "savefig.transparent": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
plot_apply_rcparams = True
nitpicky = False
# Examples run at their small size (``--full`` is the full one); that about wine is only shown without its tables.
wine = (data_folder() / "wine_quality_red.csv").is_file()
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_" if wine else r"/\d\d_(?!red_to_white)",
    "reset_modules": ("matplotlib", "gallery_pages.reset"),
    "write_computation_times": False,
    "default_thumb_file": str(Path(__file__).parent / "_static" / "logo.svg"),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,
}
