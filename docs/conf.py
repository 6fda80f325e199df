"""Configuration of the documentation: ``sphinx-build -W docs docs/_build``."""

import os
import re
from pkgutil import resolve_name

from docutils import nodes
from sphinx_gallery.sorting import ExplicitOrder

import skslot

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "skslot"
author = "The skslot developers"
copyright = "The skslot developers"
version = release = skslot.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "conftest.py"]
html_theme = "pydata_sphinx_theme"
html_title = f"skslot {version}"
html_theme_options = {
    "logo": {"text": "skslot"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_sidebars = {page: [] for page in ("index", "faq", "whats_new", "citing")}
html_static_path = ["_static"]
html_css_files = ["skslot.css"]
html_show_sourcelink = False
html_use_index = False  # the API page lists all names

copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor output
copybutton_prompt_text = r"(?:\w+ ?\w*)?\$ "
copybutton_prompt_is_regexp = True

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseEstimator,BaseSearchCV,BaseException",
}
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"merge_moments",
    "within_subsection_order": ExplicitOrder(
        [
            "plot_quickstart.py",
            "plot_hospitals_by_column.py",
            "plot_mixed_effects.py",
            "plot_tau_path.py",
            "plot_grid_search_right_and_wrong.py",
            "plot_when_alignment_hurts.py",
            "plot_bytes_against_accuracy.py",
            "plot_unseen_site.py",
            "plot_unlabelled_rows.py",
            "plot_what_leaves_a_client.py",
            "*",
            "plot_heart_disease.py",
            "plot_real_images.py",
        ]
    ),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
}


# Written out, since an inventory of theirs would have to be downloaded.
PEERS = {
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{}.html",
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
    "pandas": "https://pandas.pydata.org/docs/reference/api/{}.html",
}


def setup(app):
    app.connect("missing-reference", _link_to_peer)
    app.connect("autodoc-skip-member", _skip_what_is_inherited)
    app.connect("autodoc-process-docstring", _unlink_what_is_inherited)


def _skip_what_is_inherited(app, what, name, obj, skip, options):
    """Leave out methods that scikit-learn adds: their links lead into its own pages."""
    module = getattr(obj, "__module__", "") or ""
    return True if module.startswith("sklearn.") else None


def _unlink_what_is_inherited(app, what, name, obj, options, lines):
    """Make emphasis of links into scikit-learn's glossary and guide."""
    link = r":(?:term|ref):`([^`<]+?)(?: <[^`]*>)?`"
    lines[:] = [re.sub(link, r"*\1*", line) for line in lines]


def _link_to_peer(app, env, node, text):
    """Link a name of another package to its page there, if there is such a name."""
    name = node.get("reftarget", "")
    page = PEERS.get(name.partition(".")[0])
    if node.get("refdomain") != "py" or page is None:
        return None
    resolve_name(name)
    if node.get("reftype") == "mod":
        page = page.replace("modules/generated", "api")
    return nodes.reference("", "", text, internal=False, refuri=page.format(name))
