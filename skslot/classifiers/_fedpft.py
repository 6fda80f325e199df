"""FedPFT: a classifier trained on rows drawn from the clients' class mixtures."""

from functools import partial
from math import fsum
from numbers import Integral, Real

import numpy as np
from scipy.linalg import svd
from scipy.linalg.blas import dsyrk

from .._docstrings import document
from .._sklearn_compat import HasMethods, Interval, StrOptions
from .._utils import pack_triangle, unpack_triangle
from ..exchange import ClassMixtures
from ..statistics import FeatureMoments, average_rows, is_constant
from ._base import AlignedClassifierMixin, OneShotClassifier
from ._training import ServerEstimatorMixin, fit_logistic, train_estimator

COVARIANCE_TYPES = ("spherical", "diag", "full", "lowrank")


@document
class FedPFTClassifier(ServerEstimatorMixin, AlignedClassifierMixin, OneShotClassifier):
    """Federated classifier trained on synthetic features, in one round.

    Clients send a Gaussian mixture for each of their classes. The server draws samples
    from these mixtures and trains any classifier on them (FedPFT [1]_).

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    n_components : int, default=1
        Number of components of each mixture, at most one per distinct sample of the
        class. One component has a closed form; several are fitted by expectation
        maximization.
    covariance_type : {"spherical", "diag", "full", "lowrank"}, default="spherical"
        Covariances of the components. With K components and m features, a client sends
        K (m + 2), K (2 m + 1) or K (m + m (m + 1) / 2 + 1) numbers per class for
        "spherical", "diag" and "full". ``"lowrank"`` has one component and takes
        m (q + 1) + 2 numbers: a mean, q loadings and the residual variance of
        probabilistic principal component analysis [2]_. This is also the linear case of
        a conditional variational autoencoder.
    n_loadings : int, default=10
        Number q of loadings, at most one per feature. Only used if
        ``covariance_type="lowrank"``.
    pool : {"client", "class"}, default="client"
        ``"client"`` draws from the mixtures of each client. ``"class"`` first merges
        the mixtures of all clients, so that each class has one Gaussian with the mean
        and covariance of all its samples (CCVR [3]_).
    draws : "counts" or int, default="counts"
        Number of samples drawn for each class of each client, or for each class if
        ``pool="class"``. ``"counts"`` draws as many samples as the clients have. With a
        fixed number, small clients count as much as large ones.
    estimator : estimator object, default=None
        Classifier trained by the server on the samples drawn. If None, scikit-learn's
        logistic regression is used. It is fitted to centred samples divided by the root
        of their mean variance, so the unit of the features does not matter.
    reg_covar : float, default=1e-6
        Number added to the variances, relative to the mean variance within components.
    {aligner}
        Samples are drawn from the distributions of the clients and then transformed.
    {client_column}
    {screen}
    {random_state}
        Used to draw samples, to start expectation maximisation, and by ``estimator`` if
        ``estimator`` has no ``random_state``.
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    {estimator_}
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedCGSClassifier : Does not draw samples.
    sklearn.mixture.GaussianMixture : Fits the mixtures with several components.

    Notes
    -----
    Counts are reported by the clients. If drawing that many samples would take more
    than 8 GB, an error names the client with the largest count. A single message with
    such counts is rejected when it is read, like a damaged one, so the server can
    proceed with the other messages.

    In a Pipeline of an aligner and this classifier, mixtures are fitted after
    alignment; with ``aligner``, they are fitted before. For one component and
    ``covariance_type="full"``, both give the same Gaussian: samples drawn have the same
    mean, and their covariances differ only by chance. With ``pool="class"``,
    predictions are equal up to rounding. The maps do not preserve other types of
    covariances, so results differ slightly.

    The samples drawn depend neither on the names of the clients nor on the order of
    their messages. With the default ``estimator``, predictions do not depend on the
    unit of the features, up to rounding.

    References
    ----------
    .. [1] M. Beitollahi, A. Bie, S. Hemati, L. M. Brunswic, X. Li, X. Chen, G. Zhang.
       "Parametric Feature Transfer: One-shot Federated Learning with Foundation
       Models". arXiv:2402.01862, 2024.
    .. [2] M. E. Tipping, C. M. Bishop. "Probabilistic Principal Component Analysis".
       Journal of the Royal Statistical Society B, 61(3), 1999.
    .. [3] M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. "No Fear of
       Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data".
       NeurIPS, 2021.

    Examples
    --------
    >>> from skslot import FedPFTClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedPFTClassifier(random_state=0)
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedPFTClassifier(random_state=0)
    >>> classifier.score(data.data, data.target) > 0.85
    True
    >>> classifier.set_params(covariance_type="lowrank", n_loadings=5)
    FedPFTClassifier(covariance_type='lowrank', n_loadings=5, random_state=0)
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedPFTClassifier(covariance_type='lowrank', n_loadings=5, random_state=0)
    >>> classifier.score(data.data, data.target) > 0.92
    True
    """

    message_type = ClassMixtures

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "n_loadings": [Interval(Integral, 1, None, closed="left")],
        "pool": [StrOptions({"client", "class"})],
        "draws": [StrOptions({"counts"}), Interval(Integral, 1, None, closed="left")],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "aligner": AlignedClassifierMixin._aligner_constraint,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="spherical",
        n_loadings=10,
        pool="client",
        draws="counts",
        estimator=None,
        reg_covar=1e-6,
        aligner=None,
        client_column=None,
        screen="warn",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_loadings = n_loadings
        self.pool = pool
        self.draws = draws
        self.estimator = estimator
        self.reg_covar = reg_covar
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _summarize(self, X, y, classes, client, seed):
        if self.covariance_type == "lowrank" and self.n_components > 1:
            raise ValueError(
                f"covariance_type='lowrank' has one component per class, got "
                f"n_components={self.n_components}; raise n_loadings instead."
            )
        held, counts = np.unique(y, return_counts=True)
        shape = self.n_components, self.covariance_type, self.n_loadings, self.reg_covar
        parts = [fit_mixture(X[y == label], *shape, seed) for label in held]
        part = np.empty(0), np.empty(0)
        if self.aligner is not None:
            part = self._part_for_alignment(FeatureMoments.from_rows(X))
        return ClassMixtures(
            held.tolist(),
            self.covariance_type,
            counts.astype(np.int32),
            np.array([len(weights) for weights, *_ in parts], dtype=np.int32),
            *map(np.concatenate, zip(*parts, strict=True)),
            *part,
            client,
        )

    def _learn(self, messages, seed):
        keys, scatters, clients = [], [], []
        for message in self._labelled(messages):
            keys.append(content_key(message))
            scatters.append(scatter_within(message))
            counts = dict(zip(message.classes, message.counts.tolist(), strict=True))
            clients.append((message.client, counts, message.n_features))
        self._check_can_be_drawn(clients)
        self._fit_aligner(messages)
        # an exact sum does not depend on the order of the messages
        variance = fsum(scatters) / sum(sum(rows.values()) for _, rows, _ in clients)
        draw = partial(draw_rows, draws=self.draws, ridge=self.reg_covar * variance)
        if self.pool == "class":
            merged = merge_by_class(self._with_maps(messages))
            rows, labels = draw(merged, rng=np.random.default_rng(seed))
        else:
            # neither names nor the order of arrival change what is drawn
            ranks = np.argsort(sorted(range(len(keys)), key=keys.__getitem__))
            parts = [None] * len(keys)
            for rank, each in zip(ranks, self._with_maps(messages), strict=True):
                message, client_map = each
                drawn, owners = draw(message, rng=np.random.default_rng([seed, rank]))
                if client_map is not None:
                    drawn = client_map.transform(drawn)
                parts[rank] = drawn, owners
            rows, labels = map(np.concatenate, zip(*parts, strict=True))
        self._say(f"training on {len(labels)} rows drawn")
        default = partial(fit_logistic, scaling="common", max_iter=1000)
        self.estimator_ = train_estimator(
            self.estimator, rows, labels, seed, default=default
        )
        self.classes_ = self.estimator_.classes_

    def _check_can_be_drawn(self, clients):
        """Refuse more rows than fit in memory, which anybody may claim to have.

        ``clients`` has the name, the rows of each class and the number of features of
        each client with labels.
        """
        if not clients:
            return
        sizes = [sum(rows.values()) for _, rows, _ in clients]
        if self.draws == "counts":
            n_rows, most = sum(sizes), np.argmax(sizes)
            remedy = (
                f"Client {clients[most][0]!r} says that it has {sizes[most]} of them: "
                "if that is wrong, leave its message out; otherwise pass a number as "
                "draws."
            )
        else:
            held = [label for _, rows, _ in clients for label in rows]
            cells = len(set(held)) if self.pool == "class" else len(held)
            n_rows, remedy = cells * self.draws, f"Lower draws={self.draws}."
        n_features, most = clients[0][2], ClassMixtures.MOST_NUMBERS
        if n_rows * n_features > most:
            raise ValueError(
                f"drawing {n_rows} rows of {n_features} features would take "
                f"{n_rows * n_features / 2**27:.0f} GB, and at most "
                f"{most / 2**27:.0f} are allowed. {remedy}"
            )


# ------------------------------------------------------------------ at the client


def fit_mixture(X, n_components, covariance_type, n_loadings, reg_covar, seed):
    """Fit a mixture to the samples of one class; return its flat parameters."""
    if n_components > 1:
        n_components = min(n_components, len(np.unique(X, axis=0)))
    if n_components == 1:
        mean, covariance = single_gaussian(X, covariance_type, n_loadings)
        return np.ones(1), mean[None], covariance[None]
    # brings clusters and neighbours along, of which a server has no use
    from sklearn.mixture import GaussianMixture

    # GaussianMixture cancels far from zero, and its reg_covar has a unit
    centre = average_rows(X)
    variances = np.mean((X - centre) ** 2, axis=0)
    scale = np.sqrt(variances.mean())
    if is_constant(variances, centre, len(X)).all():
        scale = 1.0
    mixture = GaussianMixture(
        n_components,
        covariance_type=covariance_type,
        reg_covar=reg_covar,
        random_state=seed,
    ).fit((X - centre) / scale)
    # reg_covar is taken out again: it is added, once, where rows are drawn
    if covariance_type == "full":
        covariances = mixture.covariances_ - reg_covar * np.eye(len(centre))
        covariances = np.array([pack_triangle(c) for c in covariances])
    else:
        covariances = (mixture.covariances_ - reg_covar).reshape(n_components, -1)
    return mixture.weights_, scale * mixture.means_ + centre, scale**2 * covariances


def single_gaussian(X, covariance_type, n_loadings=1):
    """Return the mean and flat covariance of one Gaussian, in closed form."""
    mean = average_rows(X)
    centred = X - mean
    if covariance_type == "full":
        # dsyrk computes one triangle, which is all that is packed
        return mean, pack_triangle(dsyrk(1 / len(X), centred.T, lower=1).T)
    if covariance_type == "lowrank":
        return mean, _principal_loadings(centred, n_loadings)
    if covariance_type == "diag":
        return mean, np.einsum("ij,ij->j", centred, centred) / len(X)
    return mean, np.array([np.vdot(centred, centred) / X.size])


def _principal_loadings(centred, n_loadings):
    """Return the flat loadings, and the deviation that they leave to a feature.

    This is the maximum of the likelihood of probabilistic principal component analysis.
    Where rows span fewer directions than there are loadings, the others are zero.
    """
    n_samples, n_features = centred.shape
    n_loadings = min(n_loadings, n_features)
    if n_samples > n_features:  # the same singular values and axes, of a smaller matrix
        centred = np.linalg.qr(centred, mode="r")
    _, lengths, axes = svd(centred, full_matrices=False)
    variances = lengths**2 / n_samples
    left = max(n_features - n_loadings, 1)
    residual = variances[n_loadings:].sum() / left
    excess = np.maximum(variances[:n_loadings] - residual, 0.0)
    loadings = np.zeros((n_loadings, n_features))
    loadings[: len(excess)] = np.sqrt(excess)[:, None] * axes[: len(excess)]
    return np.append(loadings, np.sqrt(residual))


# ------------------------------------------------------------------ at the server


def content_key(message):
    """Return a key that orders messages by what is in them.

    Numbers are compared along a generic direction: that order is the same in all units
    of the features, and rounding hardly ever changes it, as it would that of a feature
    which is constant. Messages with equal keys are equal.
    """
    numbers = message.means, message.covariances, message.weights
    for_alignment = message.covariance, message.shrinkage
    directions = (
        float(array.ravel() @ np.sin(np.arange(1.0, array.size + 1)))
        for array in numbers + for_alignment
    )
    counts, n_components = message.counts.tolist(), message.n_components.tolist()
    return message.classes, counts, n_components, *directions


def scatter_within(message):
    """Sum the variances within components over rows, averaged over features."""
    # a component far from zero may have less than none, by rounding
    variances = np.maximum(message.component_variances, 0.0)
    return float(message.component_rows @ variances)


def draw_rows(message, draws, ridge, rng):
    """Draw rows from the mixture of each class; return them with their labels.

    ``draws`` rows are drawn of each class, or as many as the client has if it is
    "counts". ``ridge`` is added to all variances.
    """
    rows, labels, start = [], [], 0
    for label, count, n_components in zip(
        message.classes, message.counts, message.n_components, strict=True
    ):
        components = slice(start, start + n_components)
        weights = message.weights[components] / message.weights[components].sum()
        n_rows = int(count) if draws == "counts" else draws
        shares = rng.multinomial(n_rows, weights)
        for index, share in enumerate(shares, start=start):
            noise = _centred_noise(rng, share, message.n_features)
            rows.append(message.means[index] + _spread(noise, message, index, ridge))
        labels += [label] * n_rows
        start += n_components
    return np.vstack(rows), labels


def _centred_noise(rng, n_samples, n_features):
    """Draw white noise whose rows average to zero.

    The rows drawn then have the mean of their component exactly, and not only up to the
    error of a small sample, which the client's own rows have already added once.
    """
    noise = rng.standard_normal((n_samples, n_features))
    if n_samples > 1:
        noise -= noise.mean(axis=0)
        noise *= np.sqrt(n_samples / (n_samples - 1))
    return noise


def _spread(noise, message, index, ridge):
    """Give white noise the covariance of a component.

    The noise is multiplied by the symmetric root, which unlike a Cholesky factor hardly
    feels rounding, and unlike loadings has no sign.
    """
    flat, kind = message.covariances[index], message.covariance_type
    if kind == "full":
        eigenvalues, vectors = np.linalg.eigh(unpack_triangle(flat))
        roots = np.sqrt(np.maximum(eigenvalues, 0.0) + ridge)
        return noise @ ((vectors * roots) @ vectors.T)
    if kind == "lowrank":
        loadings, residual = _loadings(flat, message.n_features)
        _, lengths, axes = svd(loadings, full_matrices=False)
        base = np.sqrt(residual + ridge)
        roots = np.sqrt(lengths**2 + residual + ridge)
        return base * noise + ((noise @ axes.T) * (roots - base)) @ axes
    return noise * np.sqrt(np.maximum(flat, 0.0) + ridge)


def merge_by_class(messages_and_maps):
    """Merge all components of each class into one Gaussian, as a message."""
    merged = pool_components(messages_and_maps)
    classes = sorted(merged)
    counts, means, triangles = zip(*(merged[label] for label in classes), strict=True)
    return ClassMixtures(
        classes,
        "full",
        np.rint(counts).astype(np.int64),
        np.ones(len(classes), dtype=np.int32),
        np.ones(len(classes)),
        np.array(means),
        np.array(triangles),
        np.empty(0),
        np.empty(0),
    )


def pool_components(messages_and_maps, diagonal=False):
    """Compute the moments of each class from the components of all clients.

    Components are transformed by the map of their client first, if it is not None.

    Returns
    -------
    pooled : dict
        Number of rows, mean and flat covariance, by label. The covariance is a packed
        triangle or, if ``diagonal``, a diagonal; components are then diagonal too.
    """
    pooled = {}
    for message, client_map in messages_and_maps:
        matrix, offset = (None, 0.0) if client_map is None else client_map.affine
        owners = np.repeat(np.arange(len(message.classes)), message.n_components)
        for index, count in enumerate(message.component_rows):
            mean = message.means[index]
            mean = offset + (mean if matrix is None else matrix @ mean)
            flat = _flat_covariance(message, index, matrix, diagonal)
            label = message.classes[owners[index]]
            total, centre, within = pooled.get(label, (0.0, mean, flat))
            share = count / (total + count) if count else 0.0
            apart = mean - centre
            between = apart**2 if diagonal else pack_triangle(np.outer(apart, apart))
            within = (1 - share) * within + share * flat + share * (1 - share) * between
            pooled[label] = total + count, centre + share * apart, within
    return pooled


def _flat_covariance(message, index, matrix, diagonal):
    """Return the covariance of a component after a map, packed or its diagonal."""
    flat, n_features = message.covariances[index], message.n_features
    if diagonal:
        return flat if matrix is None else matrix**2 @ flat
    if message.covariance_type == "full":
        if matrix is None:
            return flat
        covariance = unpack_triangle(flat)
    elif message.covariance_type == "lowrank":
        loadings, residual = _loadings(flat, n_features)
        covariance = loadings.T @ loadings + residual * np.eye(n_features)
    else:
        covariance = np.diag(np.broadcast_to(flat, n_features))
    if matrix is not None:
        covariance = matrix @ covariance @ matrix.T
    return pack_triangle(covariance)


def _loadings(flat, n_features):
    """Return the loadings as rows, and the variance that they leave."""
    return flat[:-1].reshape(-1, n_features), flat[-1] ** 2
