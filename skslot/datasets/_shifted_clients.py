"""Gaussian classes at clients whose domains and label mixes differ by known amounts."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_random_state

from .._sklearn_compat import Interval, validate_params

# One independent random stream each, so that drawing more rows changes no class.
CLASSES, DOMAINS, SHARES, ROWS = range(4)

DESCRIPTION = """\
Simulated features with known domain and label shift
----------------------------------------------------

{n_samples} rows with {n_features} features: {n_classes} classes, {n_clients} clients.
All of it is simulated. A row of class c at client k is `matrices[k] @ z + offsets[k]`,
with z drawn from the Gaussian with mean `class_means[c]` and covariance `covariance`.

class_separation={class_separation}, domain_shift={domain_shift},
label_shift={label_shift}
"""


@validate_params(
    {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_clients": [Interval(Integral, 1, None, closed="left")],
        "n_classes": [Interval(Integral, 2, None, closed="left")],
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "class_separation": [Interval(Real, 0, None, closed="left")],
        "domain_shift": [Interval(Real, 0, 10, closed="both")],
        "label_shift": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_shifted_clients(
    n_samples=1000,
    *,
    n_clients=4,
    n_classes=5,
    n_features=20,
    class_separation=5.0,
    domain_shift=1.0,
    label_shift=None,
    random_state=None,
):
    """Generate features of clients with known domain shift and label shift.

    The classes are Gaussian with different means and one covariance. Client ``k``
    does not see a row ``z`` but ``matrices[k] @ z + offsets[k]``, with ``matrices[k]``
    symmetric positive definite, and may have some classes only.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows at all clients together; at least ``n_clients`` and
        ``n_classes``.
    n_clients : int, default=4
        Number of clients.
    n_classes : int, default=5
        Number of classes, of equal size up to rounding.
    n_features : int, default=20
        Number of features.
    class_separation : float, default=5.0
        Root mean square distance of two class means before the domain shift, in units
        of the standard deviation within classes (Mahalanobis distance).
    domain_shift : float, default=1.0
        Strength of the domain shift, from 0 to 10. At 0 all matrices are the identity
        and all offsets zero; at 1 the eigenvalues of the matrices of four clients are
        between about 1/3 and 2, and the entries of the offsets about as large as the
        standard deviation within classes.
    label_shift : float or None, default=None
        None gives all classes to all clients in nearly equal number. Otherwise the
        parameter of a symmetric Dirichlet distribution, from which the shares of the
        clients in a class are drawn for each class: the smaller, the fewer clients
        have a class.
    random_state : int, RandomState instance or None, default=None
        Determines classes, domains, label shift and rows. Pass an int for the same
        data on every call, see Notes for what it keeps when other parameters change.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with these attributes:

        data : ndarray of shape (n_samples, n_features)
            The features, as the clients see them.
        target : ndarray of shape (n_samples,)
            The class, 0 to ``n_classes - 1``.
        client_ids : ndarray of shape (n_samples,)
            The client, 0 to ``n_clients - 1``. Every client has at least one row.
        class_means : ndarray of shape (n_classes, n_features)
            Means of the classes before the domain shift.
        covariance : ndarray of shape (n_features, n_features)
            Covariance within each class before the domain shift.
        matrices : ndarray of shape (n_clients, n_features, n_features)
            Linear part of the domain shift of each client.
        offsets : ndarray of shape (n_clients, n_features)
            Translation of each client.
        DESCR : str
            Description of the data.

    See Also
    --------
    load_digit_scanners : Real images seen through simulated devices.

    Notes
    -----
    The matrices average to the identity and the offsets to zero. Hence, for clients of
    equal size and label mix, the features before the domain shift are exactly the
    Bures-Wasserstein barycenter of the clients, and the inverse of a client's matrix is
    its optimal-transport map: full alignment (``tau=1``) is right, but for sampling
    error. With label shift it is not, as it also removes what classes explain.

    The same integer ``random_state`` with another ``n_samples`` or ``label_shift``
    gives other rows from the same classes and domains, for example training data with
    label shift and test data without. Another ``n_samples`` also keeps the shares of
    the clients in each class. Another ``domain_shift`` moves the same rows ``z``
    farther or less far.

    Under label shift each class is divided among the clients, so ``n_samples`` rows
    are returned. With data that exist already a client can only drop rows, keeping its
    share of those it has of a class: the label mix is the same, the rows are fewer.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.datasets import make_shifted_clients
    >>> train = make_shifted_clients(n_samples=500, label_shift=0.1, random_state=0)
    >>> test = make_shifted_clients(n_samples=200, random_state=0)
    >>> train.data.shape, test.data.shape
    ((500, 20), (200, 20))
    >>> np.array_equal(train.matrices, test.matrices)
    True
    >>> [len(np.unique(train.target[train.client_ids == k])) for k in range(4)]
    [2, 3, 2, 4]
    """
    if n_samples < max(n_clients, n_classes):
        raise ValueError(
            f"n_samples={n_samples} is too small for n_clients={n_clients} and "
            f"n_classes={n_classes}: every client and every class needs a row."
        )
    entropy = check_random_state(random_state).randint(2**31 - 1, size=4).tolist()
    class_means, root = _draw_classes(
        _stream(entropy, CLASSES), n_classes, n_features, class_separation
    )
    matrices, offsets = _draw_domains(
        _stream(entropy, DOMAINS), n_clients, n_features, domain_shift
    )
    shares, label_shift_bits = None, 0
    if label_shift is not None:
        concentrations = np.full(n_clients, float(label_shift))
        shares = _stream(entropy, SHARES).dirichlet(concentrations, size=n_classes)
        # an integer that is another one for another label_shift
        label_shift_bits = int(np.float64(label_shift).view(np.uint64))
    rng = _stream(entropy, ROWS, n_samples, label_shift_bits)
    target, client_ids = _assign(rng, n_samples, n_classes, n_clients, shares)
    data = class_means[target] + rng.standard_normal((n_samples, n_features)) @ root
    for client in range(n_clients):
        rows = client_ids == client
        data[rows] = data[rows] @ matrices[client] + offsets[client]
    return Bunch(
        data=data,
        target=target,
        client_ids=client_ids,
        class_means=class_means,
        covariance=root @ root.T,
        matrices=matrices,
        offsets=offsets,
        DESCR=DESCRIPTION.format(
            n_samples=n_samples,
            n_clients=n_clients,
            n_classes=n_classes,
            n_features=n_features,
            class_separation=class_separation,
            domain_shift=domain_shift,
            label_shift=label_shift,
        ),
    )


def _stream(entropy, *key):
    """Make a generator for a key, whatever those of other keys have drawn."""
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=key))


def _draw_classes(rng, n_classes, n_features, class_separation):
    """Draw the means of the classes and the square root of their covariance."""
    root = _spectral(_random_symmetric(rng, n_features), lambda x: np.exp(x / 2))
    means = rng.standard_normal((n_classes, n_features))
    means -= means.mean(axis=0)
    # The mean squared distance of two of n centred points is 2 / (n - 1) times the
    # sum of their squared norms.
    means *= class_separation / np.sqrt(2 * np.sum(means**2) / (n_classes - 1))
    return means @ root, root


def _draw_domains(rng, n_clients, n_features, domain_shift):
    """Draw matrices whose average is the identity, and offsets that average to 0."""
    matrices = np.stack(
        [
            _spectral(domain_shift * _random_symmetric(rng, n_features), np.exp)
            for _ in range(n_clients)
        ]
    )
    whitening = _spectral(matrices.mean(axis=0), lambda x: 1 / np.sqrt(x))
    matrices = whitening @ matrices @ whitening
    offsets = domain_shift * rng.standard_normal((n_clients, n_features))
    return (matrices + matrices.transpose(0, 2, 1)) / 2, offsets - offsets.mean(axis=0)


def _random_symmetric(rng, n_features):
    """Draw a symmetric matrix with eigenvalues between about -1 and 1."""
    matrix = rng.standard_normal((n_features, n_features))
    return (matrix + matrix.T) / np.sqrt(8 * n_features)


def _spectral(matrix, function):
    """Apply ``function`` to the eigenvalues of a symmetric matrix."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    return (vectors * function(eigenvalues)) @ vectors.T


def _assign(rng, n_samples, n_classes, n_clients, shares):
    """Assign a class and a client to each row; no client goes without a row.

    ``shares`` are those of the clients (columns) in each class; None if equal.
    """
    target = np.arange(n_samples) * n_classes // n_samples
    client_ids = np.arange(n_samples) % n_clients
    if shares is not None:
        for label, share in enumerate(shares):
            rows = np.flatnonzero(target == label)
            quantiles = (np.arange(len(rows)) + 0.5) / len(rows)
            client_ids[rows] = np.searchsorted(np.cumsum(share)[:-1], quantiles)
    for client in range(n_clients):
        sizes = np.bincount(client_ids, minlength=n_clients)
        if not sizes[client]:
            client_ids[np.flatnonzero(client_ids == np.argmax(sizes))[0]] = client
    order = rng.permutation(n_samples)
    return target[order], client_ids[order]
