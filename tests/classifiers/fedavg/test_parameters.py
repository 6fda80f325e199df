"""Parameters: those of the net by skorch's names, the preset, scikit-learn's way."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils._param_validation import InvalidParameterError

from skslot import FedAvgClassifier, FederatedOTAligner

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")

N_CLASSES = 4
DEFAULTS = {
    "net__lr": 0.01,
    "net__max_epochs": 10,
    "net__batch_size": 64,
    "net__optimizer": "sgd",
    "net__optimizer__momentum": 0.9,
    "net__optimizer__weight_decay": 1e-5,
    "net__device": "cpu",
}

# ---------------------------------------------------------------- names of the net


@pytest.mark.parametrize("net", ["zero", "linear", "perceptron"], indirect=True)
def test_parameters_of_a_net_made_here_have_skorchs_names(net):
    classifier = FedAvgClassifier(net=net, net__lr=0.5)
    assert (
        classifier.get_params(deep=True).items()
        >= {
            **DEFAULTS,
            "net__lr": 0.5,
        }.items()
    )
    shallow = classifier.get_params(deep=False)
    assert [name for name in shallow if "__" in name] == ["net__lr"]
    made = classifier.local_net(3, [1, 1])
    assert (made.lr, made.max_epochs, made.batch_size) == (0.5, 10, 64)
    assert made.optimizer is torch.optim.SGD
    assert (made.optimizer__momentum, made.optimizer__weight_decay) == (0.9, 1e-5)


def test_parameters_of_a_skorch_net_are_its_own(skorch_net):
    own = skorch_net()
    classifier = FedAvgClassifier(net=own)
    params = classifier.get_params()
    assert (params["net__lr"], params["net__max_epochs"]) == (0.05, 3)
    assert "net__optimizer__momentum" not in params
    classifier.set_params(net__lr=0.5, net__module__bias=False)
    assert classifier.get_params()["net__lr"] == 0.5
    assert classifier.get_params()["net__module__bias"] is False
    assert (classifier.net, own.lr) == (own, 0.05)


def test_every_parameter_listed_can_be_set(skorch_net):
    for net in (None, skorch_net()):
        classifier = FedAvgClassifier(net=net, net__lr=0.3)
        params = classifier.get_params()
        again = FedAvgClassifier().set_params(**params)
        assert again.get_params() == params


def test_momentum_is_ignored_by_optimizers_without_it(blobs):
    adam = FedAvgClassifier(net__optimizer="adam", net__max_epochs=1, random_state=0)
    listed = FedAvgClassifier().set_params(**adam.get_params())
    assert listed.fit(*blobs()).model_ == adam.fit(*blobs()).model_
    with pytest.raises(TypeError, match="nesterov"):
        adam.set_params(net__optimizer__nesterov=True).fit(*blobs())


def test_the_constructor_and_set_params_agree(rows):
    X, y, clients = rows
    params = {"net__lr": 0.05, "net__optimizer__momentum": 0.5, "net__max_epochs": 3}
    left = FedAvgClassifier(random_state=0, **params)
    right = FedAvgClassifier(random_state=0).set_params(**params)
    assert left.get_params() == right.get_params()
    fitted = [each.fit(X, y, client_ids=clients) for each in (left, right)]
    assert fitted[0].model_ == fitted[1].model_
    plain = FedAvgClassifier(random_state=0).fit(X, y, client_ids=clients)
    assert plain.model_ != fitted[0].model_


def test_a_net_and_its_parameters_may_be_set_at_once(skorch_net):
    classifier = FedAvgClassifier()
    classifier.set_params(net__train_split=None, net=skorch_net(), net__lr=0.2)
    assert classifier.get_params()["net__lr"] == 0.2
    assert classifier.local_net(6, [1] * N_CLASSES).lr == 0.2


def test_arguments_of_the_module_and_of_the_optimizer(blobs, perceptron):
    X, y = blobs()
    classifier = FedAvgClassifier(net=perceptron, net__module__n_hidden=5)
    classifier.set_params(net__optimizer__nesterov=True, random_state=0).fit(X, y)
    assert classifier.model_.weights["layers.0.weight"].shape == (5, X.shape[1])
    assert classifier.net_.optimizer_.defaults["nesterov"]
    linear = FedAvgClassifier(net__module__bias=False).fit(X, y)
    assert linear.model_.weights.keys() == {"weight"}


def test_a_copy_keeps_its_parameters():
    classifier = FedAvgClassifier(net__lr=0.5)
    twin = copy.copy(classifier).set_params(net__lr=0.1)
    assert classifier.get_params()["net__lr"] == 0.5
    assert twin.get_params()["net__lr"] == 0.1


def test_clone_and_pickle_keep_parameters_of_the_net():
    classifier = FedAvgClassifier(net=torch.nn.Linear, net__lr=0.5, net__max_epochs=2)
    for twin in (clone(classifier), pickle.loads(pickle.dumps(classifier))):
        assert twin.get_params() == classifier.get_params()
        twin.set_params(net__lr=0.1)
    assert classifier.get_params()["net__lr"] == 0.5


def test_repr_shows_what_was_set():
    classifier = FedAvgClassifier(2, net__lr=0.5).set_params(net__optimizer="adam")
    assert repr(classifier) == (
        "FedAvgClassifier(n_rounds=2, net__lr=0.5, net__optimizer='adam')"
    )
    assert repr(FedAvgClassifier()) == "FedAvgClassifier()"
    assert "net__lr" in classifier._repr_html_()


@pytest.mark.parametrize("net", ["zero", "linear", "skorch"], indirect=True)
def test_a_misspelt_name_is_refused_with_the_right_ones(blobs, net):
    match = r"'net__lrr' for FedAvgClassifier.*net__lr, net__max_epochs"
    with pytest.raises(ValueError, match=match):
        FedAvgClassifier(net=net).set_params(net__lrr=0.1)
    with pytest.raises(ValueError, match=match):
        FedAvgClassifier(net=net, net__lrr=0.1).fit(*blobs())
    with pytest.raises(ValueError, match=match):
        FedAvgClassifier(net=net, net__lrr=0.1).client_update(*blobs())
    with pytest.raises(ValueError, match=match):
        GridSearchCV(FedAvgClassifier(net=net), {"net__lrr": [0.1]}).fit(*blobs())
    with pytest.raises(ValueError, match="'net__optimiser__momentum'"):
        FedAvgClassifier(net=net).set_params(net__optimiser__momentum=0.1)


def test_names_that_are_not_of_the_net_are_refused():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'lr'.*net__lr"):
        FedAvgClassifier(lr=0.1)
    with pytest.raises(ValueError, match=r"Invalid parameter 'lr'.*'net'"):
        FedAvgClassifier().set_params(lr=0.1)
    # a net made here has few parameters, one that is passed has all of skorch's
    with pytest.raises(ValueError, match=r"'net__train_split'.*pass a skorch net"):
        FedAvgClassifier().set_params(net__train_split=None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("net__lr", 0),
        ("net__max_epochs", 0),
        ("net__batch_size", -1),
        ("net__optimizer", "lbfgs"),
        ("net__optimizer__momentum", 1),
        ("net__optimizer__weight_decay", -1e-5),
        ("net__device", 0),
    ],
)
def test_values_that_a_net_made_here_cannot_have(blobs, name, value):
    classifier = FedAvgClassifier(**{name: value})
    with pytest.raises(InvalidParameterError, match=f"'{name}' .* FedAvgClassifier"):
        classifier.fit(*blobs())
    with pytest.raises(InvalidParameterError, match=f"'{name}' .* FedAvgClassifier"):
        classifier.client_update(*blobs())


def test_a_skorch_net_may_have_values_of_its_own(blobs, skorch_net):
    classifier = FedAvgClassifier(net=skorch_net(), net__batch_size=-1, random_state=0)
    assert classifier.fit(*blobs()).net_.batch_size == -1  # all rows
    classifier.set_params(net__optimizer="adam").fit(*blobs())
    assert isinstance(classifier.net_.optimizer_, torch.optim.Adam)


@pytest.mark.parametrize("net", ["zero", "linear", "skorch"], indirect=True)
def test_grid_search_over_parameters_of_the_net(blobs, net):
    X, y = blobs()
    lrs = [1e-5, 0.05]
    classifier = FedAvgClassifier(net=net, net__max_epochs=2, random_state=0)
    grid = {"net__lr": lrs, "net__optimizer": ["sgd", torch.optim.Adam]}
    options = {"cv": 2, "scoring": "neg_log_loss"}
    search = GridSearchCV(classifier, grid, error_score="raise", **options).fit(X, y)
    assert search.best_params_["net__lr"] == search.best_estimator_.net_.lr == 0.05
    for params, score in zip(
        search.cv_results_["params"],
        search.cv_results_["mean_test_score"],
        strict=True,
    ):
        alone = FedAvgClassifier(net=net, net__max_epochs=2, random_state=0, **params)
        assert score == cross_val_score(alone, X, y, **options).mean()
    assert "net__lr" not in classifier.get_params(deep=False)


GRID = {"classifier__net__lr": [1e-3, 1e-2], "classifier__standardize": [True, False]}


def test_grid_search_behind_the_aligner_with_routed_ids(rows):
    X, y, clients = rows
    steps = [
        ("aligner", FederatedOTAligner()),
        ("classifier", FedAvgClassifier(net__max_epochs=3, random_state=0)),
    ]
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(Pipeline(steps), GRID, cv=2, error_score="raise")
        search.fit(X, y, client_ids=clients)
        assert search.score(X, y, client_ids=clients) > 0.9
        best = search.best_estimator_
        probabilities = best.predict_proba(X, client_ids=clients)
    assert probabilities.shape == (len(X), N_CLASSES)
    assert set(best[-1].clients_report_.clients) == {"A", "B", "C"}


def test_grid_search_behind_the_aligner_with_a_client_column(rows):
    pd = pytest.importorskip("pandas")
    X, y, clients = rows
    frame = pd.DataFrame(X, columns=list("uvwxyz")).assign(site=clients)
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    params = {"net__max_epochs": 3, "random_state": 0}
    classifier = FedAvgClassifier(client_column="site", **params)
    aligner.set_output(transform="pandas")
    pipeline = Pipeline([("aligner", aligner), ("classifier", classifier)])
    search = GridSearchCV(pipeline, GRID, cv=2, scoring="accuracy", error_score="raise")
    search.fit(frame, y)
    assert search.score(frame, y) > 0.9
    fitted = search.best_estimator_[-1]
    assert set(fitted.clients_report_.clients) == {"A", "B", "C"}
    assert fitted.n_features_in_ == 7


# ------------------------------------------------------------------------- the preset


def test_preset_of_the_paper():
    classifier = FedAvgClassifier.as_in_paper(random_state=0)
    params = classifier.get_params()
    assert classifier.net is torch.nn.Linear
    assert {name: params[name] for name in DEFAULTS} == {**DEFAULTS, "net__lr": 1e-3}
    assert not classifier.standardize
    assert classifier.local_softmax == "all"
    assert classifier.averaging == "uniform"
    other = FedAvgClassifier.as_in_paper(net__lr=0.01, local_softmax="held")
    assert (other.get_params()["net__lr"], other.local_softmax) == (0.01, "held")


# ---------------------------------------------------------------------- without torch


def test_without_torch_the_install_line_is_named(monkeypatch, blobs):
    for package in ("torch", "skorch"):
        with monkeypatch.context() as context:
            context.setitem(sys.modules, package, None)
            for use in (
                lambda: FedAvgClassifier().fit(*blobs()),
                lambda: FedAvgClassifier().client_update(*blobs()),
                FedAvgClassifier.as_in_paper,
            ):
                with pytest.raises(ImportError, match=r'pip install "skslot\[torch\]"'):
                    use()


def test_import_and_construction_need_no_torch():
    code = """
import sys
class NotInstalled:
    def find_spec(name, path=None, target=None):
        if name in ("torch", "skorch"):
            raise ImportError(name)
sys.meta_path.insert(0, NotInstalled)
from skslot import FedAvgClassifier
from sklearn.base import clone
classifier = clone(FedAvgClassifier(net__lr=0.1)).set_params(net__max_epochs=2)
print(classifier, classifier.get_params())
classifier.client_summary([[1.0], [2.0]])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------- scikit-learn's way


@pytest.mark.parametrize("net", ["zero", "perceptron", "skorch"], indirect=True)
def test_pickle_and_clone_of_a_fitted_classifier(rows, net):
    X, y, clients = rows
    classifier = FedAvgClassifier(net=net, net__max_epochs=1, random_state=0)
    classifier.fit(X, y, client_ids=clients)
    twin = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(twin.predict_proba(X), classifier.predict_proba(X))
    again = clone(classifier).fit(X, y, client_ids=clients)
    assert again.model_ == classifier.model_
