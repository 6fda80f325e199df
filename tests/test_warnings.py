"""Warnings point at the line of the user that they are about."""

import linecache
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    FrozenEncoder,
)
from skslot._utils import warn_user
from skslot.cli._main import warn_of_spellings
from skslot.geometry import bures_barycenter
from skslot.model_selection import CellHoldoutKFold

Y = IDS = np.repeat([0, 1], 20)  # each client has a class of its own
CELLS = CellHoldoutKFold(4, unseen=0.5)


def search():
    return GridSearchCV(DummyClassifier(), {"random_state": [0]}, cv=CELLS)


@pytest.fixture
def told():
    """The lines of code that warnings point at."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [linecache.getline(w.filename, w.lineno).strip() for w in caught]


def test_own_call(told):
    list(CELLS.split(Y, Y, IDS))
    assert told() == ["list(CELLS.split(Y, Y, IDS))"]


def test_call_through_a_search(told):
    search().fit(Y[:, None], Y, groups=IDS)
    assert told() == ["search().fit(Y[:, None], Y, groups=IDS)"]


def test_call_through_a_pipeline_and_validated_parameters(told):
    step = FunctionTransformer(lambda X: search().fit(X, Y, groups=IDS) and X)
    make_pipeline(step, DummyClassifier()).fit(Y[:, None], Y)
    assert told() == [  # of what is the user's, the innermost
        "step = FunctionTransformer(lambda X: search().fit(X, Y, groups=IDS) and X)"
    ]
    make_pipeline(search()).fit(Y[:, None], Y, gridsearchcv__groups=IDS)
    assert told()[1:] == [
        "make_pipeline(search()).fit(Y[:, None], Y, gridsearchcv__groups=IDS)"
    ]


def test_call_through_joblib(told):
    split = delayed(CELLS.split(Y, Y, IDS).__next__)
    Parallel(n_jobs=1)([split()])
    assert told() == ["Parallel(n_jobs=1)([split()])"]


def test_thread_without_a_line_of_the_user(told):
    thread = threading.Thread(target=list, args=(CELLS.split(Y, Y, IDS),))
    thread.start()
    thread.join()
    assert told() == ["warn_user("]


def test_user_in_code_without_a_file():
    with pytest.warns(UserWarning, match="only 0 of 2") as caught:
        exec("\n\nlist(CELLS.split(Y, Y, IDS))", {"CELLS": CELLS, "Y": Y, "IDS": IDS})
    assert (caught[0].filename, caught[0].lineno) == ("<string>", 3)


def test_labels_that_look_alike(told):
    warn_of_spellings([("cat", "A"), ("Cat", "B")])
    assert told() == ['warn_of_spellings([("cat", "A"), ("Cat", "B")])']


def test_images_that_are_nearly_black_and_a_damaged_cache(told, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("PIL")
    images = np.full((2, 4, 4), 4095, dtype=np.uint16)
    encoder = FrozenEncoder(torch.nn.Flatten(), cache_dir=tmp_path)
    make_pipeline(encoder).fit_transform(images)
    assert told() == ["make_pipeline(encoder).fit_transform(images)"]
    (file,) = tmp_path.glob("*.sqlite")
    file.write_bytes(b"garbage" * 1000)
    encoder.cache_info()
    assert told()[1:] == ["encoder.cache_info()"]


def test_category_and_text_are_those_given():
    with pytest.warns(ConvergenceWarning, match="^not there yet$"):
        warn_user("not there yet", ConvergenceWarning)


def test_one_line_is_told_once_by_default():
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("default")
        for _ in range(3):
            warn_user("the same")
        warn_user("the same")
    assert len(caught) == 2


IN_WORKER = """
import numpy as np
from joblib import Parallel, delayed
from skslot import FederatedOTAligner

X = np.random.default_rng(0).normal(size=(40, 2))
y, site = [0, 1] * 20, [0] * 20 + [1] * 20
job = delayed(FederatedOTAligner().fit)(X, y, client_ids=site)
Parallel(n_jobs=2, backend="loky")([job])
"""


@pytest.mark.slow
def test_process_without_a_line_of_the_user_points_at_ours():
    """And not at the line of joblib that the process began with."""
    command = [sys.executable, "-c", IN_WORKER]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if "AlignmentWarning" in line]
    assert "_optimal_transport.py:" in line


# ------------------------------------------------------------- warnings of fit

ROWS = np.random.default_rng(0).normal(size=(40, 3))
LABELS = np.tile(["x", "y"], 20)
ONE_ROW = np.repeat(["A", "B"], [39, 1])
FEW = np.repeat(["A", "B"], [38, 2])


def test_labels_without_ids(told):
    FederatedOTAligner().fit(ROWS, LABELS)
    assert told() == ["FederatedOTAligner().fit(ROWS, LABELS)"]


def test_classifier_without_ids(told):
    FedPFTClassifier(random_state=0).fit(ROWS, LABELS)
    assert told() == ["FedPFTClassifier(random_state=0).fit(ROWS, LABELS)"]


def test_client_whose_rows_do_not_vary(told):
    FederatedOTAligner().fit(ROWS, client_ids=ONE_ROW)
    assert told() == ["FederatedOTAligner().fit(ROWS, client_ids=ONE_ROW)"]


def test_client_with_a_singular_covariance(told):
    FederatedOTAligner(shrinkage=0).fit(ROWS, client_ids=FEW)
    assert told() == ["FederatedOTAligner(shrinkage=0).fit(ROWS, client_ids=FEW)"]


def test_reference_that_has_not_converged(told):
    FederatedOTAligner(max_iter=1).fit(ROWS * (1, 1, 9), client_ids=ONE_ROW[::-1])
    assert any(
        line.startswith("FederatedOTAligner(max_iter=1).fit(") for line in told()
    )
    bures_barycenter([np.eye(2), np.diag([1.0, 9.0])], max_iter=1)
    assert told()[-1].startswith("bures_barycenter([np.eye(2)")


def test_float16_that_is_too_coarse(told):
    message = FedCGSClassifier().client_update(ROWS + 3000, LABELS)
    message.to_bytes("float16")
    assert told() == ['message.to_bytes("float16")']


def test_clients_inside_a_classifier_and_a_pipeline(told):
    model = make_pipeline(FedCGSClassifier(aligner=FederatedOTAligner()))
    model.fit(ROWS, LABELS, fedcgsclassifier__client_ids=ONE_ROW)
    assert told() == ["model.fit(ROWS, LABELS, fedcgsclassifier__client_ids=ONE_ROW)"]


def test_alignment_that_is_likely_to_hurt(told):
    FederatedOTAligner().fit(ROWS, LABELS, client_ids=IDS)
    assert told() == ["FederatedOTAligner().fit(ROWS, LABELS, client_ids=IDS)"]
    model = make_pipeline(FedCGSClassifier(aligner=FederatedOTAligner()))
    model.fit(ROWS, LABELS, fedcgsclassifier__client_ids=IDS)
    assert told()[1:] == ["model.fit(ROWS, LABELS, fedcgsclassifier__client_ids=IDS)"]
