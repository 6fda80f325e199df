"""Configuration of the documentation: ``sphinx-build -W docs docs/_build``."""

import os
import re

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
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "conftest.py"]
html_theme = "alabaster"
html_theme_options = {
    "description": "One-shot federated learning by optimal-transport alignment",
    "page_width": "1100px",
    "sidebar_width": "240px",
}
html_show_sourcelink = False

autosummary_generate = True
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
    "ignore_pattern": r"/(merge_moments|benchmarks|flower)",
    "within_subsection_order": ExplicitOrder(
        [
            "plot_quickstart.py",
            "plot_tau_path.py",
            "plot_grid_search_right_and_wrong.py",
            "plot_unseen_site.py",
            "plot_when_alignment_hurts.py",
            "plot_what_leaves_a_client.py",
            "plot_heart_disease.py",
            "plot_real_images.py",
            "*",
        ]
    ),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
}


def setup(app):
    app.connect("autodoc-skip-member", _skip_what_is_inherited)
    app.connect("autodoc-process-docstring", _unlink_what_is_inherited)


def _skip_what_is_inherited(app, what, name, obj, skip, options):
    """Leave out methods that scikit-learn adds: their links lead into its own pages."""
    module = getattr(obj, "__module__", "") or ""
    return True if module.startswith("sklearn.") else None


def _unlink_what_is_inherited(app, what, name, obj, options, lines):
    """Make plain text of links into scikit-learn's glossary and guide."""
    link = r":(?:term|ref):`([^`<]+?)(?: <[^`]*>)?`"
    lines[:] = [re.sub(link, r"\1", line) for line in lines]
