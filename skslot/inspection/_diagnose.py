"""What the rows of several clients are like, and which estimator they call for."""

import tempfile
from numbers import Integral

import numpy as np
from sklearn.utils import check_array

from .._sklearn_compat import StrOptions, validate_params
from .._utils import ignored
from ..alignment import FederatedOTAligner
from ..base import (
    FEATURES,
    ClientGroups,
    assert_finite_by_client,
    clients_array,
    naming_odd_columns,
    number_clients,
    split_client_column,
)
from ..classifiers import FedCGSClassifier, FedQDAClassifier, MixedEffectsClassifier
from ..model_selection import class_table
from ..statistics import average_rows, is_constant
from ._alignment_report import variance_shares
from ._diagnosis import MIXED, SURE, Diagnosis
from ._expected_accuracy import Trials

PLAIN = "no alignment"
PER_CLASS = "covariance per class"
TRANSPORTS = {f"optimal transport, tau={tau}": tau for tau in ("auto", 0.2, 0.4, 0.6)}
ROUGHLY = 1e-5  # of the reference: the accuracy is the same
# Another model is recommended if it is better by a point, and by two standard errors.
WORTH_IT = 0.01
# Standard deviations of features that differ by more are of different units.
SCALES = 30.0


@validate_params(
    {
        "X": "no_validation",
        "y": ["array-like", None],
        "client_ids": ["array-like", None],
        "client_column": [str, Integral, None],
        "labels_at_use": [StrOptions({"shared", "as_now"})],
        "random_state": ["random_state"],
        "progress": [callable, None],
    },
    prefer_skip_nested_validation=True,
)
def diagnose(
    X,
    y=None,
    client_ids=None,
    *,
    client_column=None,
    labels_at_use="shared",
    random_state=0,
    progress=None,
):
    """Say what the clients are like, and recommend an estimator for them.

    Some models are tried on rows that are held out, some of them as whole (client,
    class) cells. Mixed effects are recommended unless another one is better by a point
    and by two standard errors.

    Read more in the :doc:`User Guide </user_guide/diagnose>`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features, with or without the client column.
    y : array-like of shape (n_samples,), default=None
        Labels. Without them nothing can be recommended.
    client_ids : array-like of shape (n_samples,), default=None
        Client of each row, unless they are a column of X.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids.
    labels_at_use : {"shared", "as_now"}, default="shared"
        Labels that each client will meet when the model is used: as all clients
        together have them now, or in the mix that the client has now. No data can tell,
        and much depends on it.
    random_state : int, RandomState instance or None, default=0
        Which rows are held out.
    progress : callable, default=None
        Called with (models fitted, models in all).

    Returns
    -------
    diagnosis : Diagnosis
        Prints as a text, which notebooks show as HTML; ``to_frame()`` is a pandas
        DataFrame with a row per client. It has these attributes:

        clients : ndarray of shape (n_clients,)
            Client ids.
        n_features : int
            Number of features.
        n_samples : ndarray of shape (n_clients,)
            Rows of each client.
        rows_per_feature : ndarray of shape (n_clients,)
            These, divided by the number of features.
        table : ClassTable or None
            Rows of each class at each client, as
            :func:`~skslot.model_selection.class_table` counts them; None without
            labels, as are the other attributes on labels.
        label_shift : ndarray of shape (n_clients,)
            Share of the rows of the client that would need another label, for its label
            mix to be that of all clients: the total variation distance.
        shares : dict
            Shares of "class", "site", "site by class" and "within" in the variance
            between rows, by mixed effects.
        clients_report : ClientsReport
            Who stands out, see :doc:`/user_guide/trust`.
        scores : dict
            For each model that was tried, the mean accuracy over clients to expect,
            its difference to that of mixed effects, and the standard error of that. Of
            several ``tau`` the best is here.
        accuracies : dict
            For each model, and for each ``tau``, the accuracy to expect at each client.
        accuracy, error : ndarray of shape (n_clients,)
            Accuracy of the recommended estimator to expect at each client, and its
            standard error; NaN where rows are too few to say.
        weak : list
            Clients where that is far below the mean.
        labels_at_use : str
            What was assumed.
        estimator : estimator object or None
            The recommended estimator, to be fitted to all rows.
        code : str
            The same as code; empty without labels.
        recommendation : str
            Three sentences with the reasons.
        warnings : list of str
            What else to look at.

    See Also
    --------
    alignment_report : Report on the clients of a fitted estimator.
    skslot.model_selection.FederatedGridSearchCV : Searches for parameters.

    Examples
    --------
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.inspection import diagnose
    >>> from skslot.model_selection import dirichlet_label_shift
    >>> data = load_digit_scanners()
    >>> rows = dirichlet_label_shift(data.target, data.client_ids, 0.1, random_state=0)
    >>> X, y, site = data.data[rows], data.target[rows], data.client_ids[rows]
    >>> diagnosis = diagnose(X, y, site)
    >>> diagnosis.estimator
    MixedEffectsClassifier()
    >>> diagnosis.table.n_absent
    18
    >>> model = diagnosis.estimator.fit(X, y, client_ids=site)
    """
    X, client_ids = _read(X, client_ids, client_column)
    clients, codes = number_clients(client_ids, len(X))
    if len(clients) < 2:
        raise ValueError(
            f"all rows are of one client, {clients[0]!r}: there is nobody to compare "
            "it with. Pass the rows of all clients."
        )
    assert_finite_by_client(X, ClientGroups.from_codes(clients, codes))
    facts = {
        "clients": clients_array(clients),
        "n_features": X.shape[1],
        "n_samples": np.bincount(codes),
        "labels_at_use": labels_at_use,
    }
    scale_notes = _notes_on_scales(X)
    if y is None:
        looked = _quietly(FederatedOTAligner(tau=0).fit, X, client_ids=client_ids)
        report = looked.clients_report_
        return Diagnosis(**facts, clients_report=report, more_warnings=scale_notes)
    looked = _quietly(MixedEffectsClassifier(tau=0).fit, X, y, client_ids=client_ids)
    y = np.ravel(y)
    table = class_table(y, client_ids)
    if len(table.classes) < 2:
        raise ValueError(
            f"all labels are {table.classes.tolist()[0]!r}: there is nothing to tell "
            "apart. Pass rows of two classes or more."
        )
    keeps_labels = labels_at_use == "as_now"
    trials = Trials.prepare(X, y, codes, keeps_labels, random_state)
    answers = _try_models(trials, keeps_labels, progress)
    scores = {
        name: (
            trials.mean_accuracy(each)[0],
            *trials.mean_accuracy(each - answers[MIXED]),
        )
        for name, each in answers.items()
    }
    scores = _with_the_best_tau(scores)
    chosen = _choose(scores)
    _, error = trials.accuracy(answers[chosen])
    estimator = offered_models(keeps_labels)[chosen]
    if client_column is not None:
        estimator.set_params(client_column=client_column)
    return Diagnosis(
        **facts,
        clients_report=looked.clients_report_,
        table=table,
        shares=variance_shares(looked.aligner_),
        scores=scores,
        chosen=chosen,
        accuracies={name: trials.accuracy(each)[0] for name, each in answers.items()},
        error=error,
        estimator=estimator,
        more_warnings=scale_notes,
    )


def _read(X, client_ids, client_column):
    if client_column is not None:
        X, client_ids, _ = split_client_column(X, client_column, client_ids)
    elif client_ids is None:
        raise ValueError(
            "diagnose compares clients; pass client_ids, one for each row, or name the "
            "column of X that has them by client_column."
        )
    with naming_odd_columns(X, client_column):
        return check_array(X, **{**FEATURES, "dtype": np.float64}), client_ids


def _quietly(fit, *rows, **ids):
    """Fit without warnings: a diagnosis has its own."""
    with ignored(UserWarning):
        return fit(*rows, **ids)


def offered_models(keeps_labels, memory=None):
    """Models to choose from, by name; mixed effects first."""
    priors = {"priors": "client"} if keeps_labels else {}
    rough = {} if memory is None else {"memory": memory, "tol": ROUGHLY}
    aligned = {
        name: FedCGSClassifier("within", aligner=FederatedOTAligner(tau, **rough))
        for name, tau in TRANSPORTS.items()
    }
    return {
        MIXED: MixedEffectsClassifier(**priors),
        PLAIN: FedCGSClassifier("within"),
        **aligned,
        PER_CLASS: FedQDAClassifier(),
    }


def _try_models(trials, keeps_labels, progress):
    """Answers of each model."""
    with tempfile.TemporaryDirectory() as memory:
        models, done = offered_models(keeps_labels, memory), 0

        def step():
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, len(models) * trials.n_fits)

        return {name: trials.run(each, step) for name, each in models.items()}


def _with_the_best_tau(scores):
    """The scores without those strengths that are not the best."""
    best = max(TRANSPORTS, key=lambda name: scores[name][0])
    return {k: v for k, v in scores.items() if k not in TRANSPORTS or k == best}


def _choose(scores):
    """Mixed effects, or what is better beyond doubt."""
    better = {
        name: mean
        for name, (mean, ahead, error) in scores.items()
        if ahead > max(WORTH_IT, SURE * error)
    }
    return max(better, key=better.get, default=MIXED)


def _notes_on_scales(X):
    mean = average_rows(X)
    variances = np.square(X - mean).mean(axis=0)
    deviations = np.sqrt(variances[~is_constant(variances, mean, len(X))])
    if not len(deviations) or deviations.max() <= SCALES * np.median(deviations):
        return []
    ratio = deviations.max() / np.median(deviations)
    return [
        f"One feature varies {ratio:.0f} times as much as the median one: features of "
        "different units hide each other. Scale them first, such as by FederatedScaler."
    ]
