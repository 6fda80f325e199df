"""The Gaussian mechanism: how much noise a guarantee takes, and where it comes from."""

from contextlib import contextmanager

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from .._optional import import_optional

# Numbers are rounded to this power of two, in units of the sensitivity, before noise of
# the same grain is added: noise of full precision could give away the last bits.
GRAIN = -40

# More noise by this share makes up for all rounding. Sums of rows are exact; that they
# are divided by their units moves the vector by 2^-53 of its norm, which is at most the
# number of rows, and its grain moves it by 2^-40 times the root of its length. For a
# billion rows and a hundred million numbers both are below a fourth of this.
MARGIN = 1e-6


def gaussian_noise_scale(epsilon, delta):
    """Compute the least noise for a guarantee, per unit of sensitivity.

    The analytic Gaussian mechanism [1]_: the smallest standard deviation for which
    Gaussian noise is (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon : float
        Most that one row may change the logarithm of the odds of any outcome.
    delta : float
        Probability with which it may change more.

    Returns
    -------
    scale : float
        Standard deviation of the noise, divided by the largest change (in Euclidean
        norm) that adding or removing one row makes.

    See Also
    --------
    PrivacyBudget : Uses it for what a client sends.

    References
    ----------
    .. [1] B. Balle, Y.-X. Wang. "Improving the Gaussian Mechanism for Differential
       Privacy: Analytical Calibration and Optimal Denoising". ICML, 2018.

    Examples
    --------
    >>> from skslot.privacy import gaussian_noise_scale
    >>> round(gaussian_noise_scale(1.0, 1e-5), 3)
    3.731
    """
    if not (1e-6 <= epsilon <= 1e9 and 1e-30 <= delta < 1):
        raise ValueError(
            f"epsilon must be positive and delta between 0 and 1 (1e-6 to 1e9, 1e-30 "
            f"to 1), got {epsilon!r} and {delta!r}."
        )

    def excess(log_scale):
        scale = np.exp(log_scale)
        less, more = 0.5 / scale - epsilon * scale, 0.5 / scale + epsilon * scale
        # the second term by its logarithm: e^epsilon alone may overflow
        return ndtr(less) - np.exp(epsilon + log_ndtr(-more)) - delta

    # at the root itself, rounding might fall on the wrong side
    return float(np.exp(brentq(excess, -20.0, 20.0, xtol=1e-12)) * (1 + 1e-9))


def opendp_noise(numbers, scale):
    """Add Gaussian noise to numbers of unit sensitivity, by a vetted sampler.

    Neither NumPy's generator, whose state can be found out from what it gave, nor its
    normal numbers, whose gaps give the number below away, are made for this.
    """
    opendp = import_optional("opendp.prelude", "privacy", "differential privacy")
    opendp.enable_features("contrib")
    atoms = opendp.atom_domain(T=float, nan=False)
    space = opendp.vector_domain(atoms, size=len(numbers)), opendp.l2_distance(T=float)
    measure = opendp.m.make_gaussian(*space, scale=scale, k=GRAIN)
    return np.array(measure(numbers.tolist()))


_source = opendp_noise


def add_noise(numbers, scale):
    """Add noise, from where it always comes but in tests."""
    return _source(numbers, scale)


@contextmanager
def noise_for_tests(source):
    """Let noise come from elsewhere, which voids every guarantee: for tests only.

    ``source(numbers, scale)`` returns the numbers with its noise.
    """
    global _source
    _source = source
    try:
        yield
    finally:
        _source = opendp_noise
