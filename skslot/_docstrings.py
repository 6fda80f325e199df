"""Parameters and attributes that several estimators share, documented once.

A line such as ``{screen}`` in the docstring of a class or method stands for an entry
below. :func:`document` inserts it. Lines that follow in the docstring, indented like a
description, continue the description.
"""

import re
from inspect import isfunction
from textwrap import indent

ENTRIES = """
X : array-like of shape (n_samples, n_features)
    Samples.

y : array-like of shape (n_samples,), default=None
    Labels of the samples.

client_ids : array-like of shape (n_samples,) or scalar, default=None
    Client of each sample. A scalar means that all samples belong to one client. Not
    needed if X contains the ids (``client_column``), or if the estimator treats all
    clients alike.

client : object, default=None
    Id of the client.

aligner : aligner object, default=None
    Aligner of the features, such as a :class:`~skslot.FederatedOTAligner`. It is fitted
    to the messages that clients send to the classifier, so alignment needs no second
    exchange. The aligner's ``screen`` is ignored. If None, features are not aligned;
    otherwise, predictions need the client of each sample.

priors : {"empirical", "uniform"} or array-like of shape (n_classes,), \
default="empirical"
    Class probabilities. ``"empirical"`` uses the class distribution of all clients
    together, ``"uniform"`` equal probabilities. An array contains one probability for
    each entry of ``classes_``.

unknown_client : {"error", "identity", "adapt"}, default="error"
    How to handle samples of clients that were not seen in ``fit``. ``"error"`` raises
    an error, ``"identity"`` leaves the samples unchanged, ``"adapt"`` estimates the
    alignment of the client from the samples of the same call. With ``"adapt"``, the
    result for a sample depends on the samples that are passed with it, so pass all
    samples of the client at once. For a client that will be seen again, prefer
    :meth:`add_client`.

privacy : PrivacyBudget, default=None
    Differential privacy guarantee for the samples of each client. Messages then
    consist of noisy sums only, ``client_update`` requires ``classes``, and ``fit``
    treats the labels in ``y`` as public. See :class:`~skslot.privacy.PrivacyBudget`. If
    None, no noise is added.

client_column : str or int, default=None
    Name or position of the column of X that contains the client ids. If None, ids are
    passed as ``client_ids``.

keep_client_column : bool, default=False
    Whether the output contains the column of client ids, in its original position.

screen : None, "warn", "exclude" or ClientScreen, default="warn"
    How to handle clients whose statistics are implausible compared with all others,
    see :doc:`/user_guide/trust`. ``"warn"`` issues a warning, ``"exclude"`` drops the
    client, ``None`` disables the check. A :class:`~skslot.trust.ClientScreen` can also
    limit the fraction of all samples that one client may contribute.

memory : str or object with the joblib.Memory interface, default=None
    Used to cache the result of the alignment solver. It does not depend on ``tau``, so
    a grid search over ``tau`` runs the solver once per fold. If a string is given, it
    is the path to the cache directory. If None, no caching is done.

random_state : int, RandomState instance or None, default=None
    Determines random number generation. Pass an int for reproducible results across
    multiple calls of ``fit``, whatever ``n_jobs`` is.

n_jobs : int, default=None
    Number of threads that process clients in parallel. None means 1, and -1 means all
    processors. Results do not depend on it. At most ``n_jobs + 1`` messages are read
    from files into memory at a time.

verbose : int, default=0
    If 1, print a line for each client that is done. Aligners and mixed effects also
    print a line for each iteration of their solver.

clients_ : ndarray of shape (n_clients,)
    Client ids in sorted order, followed by clients added by :meth:`add_client`;
    ``[None]`` if ``fit`` was called without ids.

classes_ : ndarray of shape (n_classes,)
    Class labels that at least one client holds.

coef_ : ndarray of shape (n_classes, n_features)
    Weights of the linear classifier.

intercept_ : ndarray of shape (n_classes,)
    Intercepts of the linear classifier.

priors_ : ndarray of shape (n_classes,)
    Class probabilities.

estimator_ : estimator object
    Classifier trained by the server.

means_ : ndarray of shape (n_clients, n_features)
    Mean of each client.

variance_components_ : dict
    Variances of the "client", "class" and "interaction" effects, relative to the
    variance within a class at a client.

client_offsets_ : ndarray of shape (n_clients, n_features)
    Offset of each client, which is subtracted from the features after the linear map.

class_means_ : ndarray of shape (n_classes, n_features)
    Mean of each class over clients, without their offsets.

tau_ : ndarray of shape (n_clients,)
    Alignment strength of each client.

converged_ : bool
    Whether the estimation of the variance components converged.

clients_report_ : ClientsReport
    Number of samples of each client, distance to the other clients, and which clients
    are outliers.

aligner_ : aligner object
    Fitted aligner. Only defined if ``aligner`` is not None.

n_features_in_ : int
    Number of columns of X seen during ``fit``, including the client column if there is
    one.

feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the columns of X seen during ``fit``. Defined only when all names are
    strings.
"""

SHARED = {entry.split(" : ")[0]: entry for entry in ENTRIES.strip().split("\n\n")}


def document(cls):
    """Insert shared entries into the docstrings of a class and of its methods."""
    for item in (cls, *filter(isfunction, vars(cls).values())):
        if item.__doc__ is not None:  # None with python -OO
            item.__doc__ = re.sub(
                r"^( *)\{(\w+)\}$",
                lambda line: indent(SHARED[line[2]], line[1]),
                item.__doc__,
                flags=re.MULTILINE,
            )
    return cls
