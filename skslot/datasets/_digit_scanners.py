"""Handwritten digits seen through four simulated acquisition devices."""

from textwrap import indent
from typing import NamedTuple

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.utils import Bunch, check_random_state

from .._sklearn_compat import validate_params
from .._utils import text_table

FULL_INK = 16.0


class Device(NamedTuple):
    """What a device does to an image, in this order; ink is between 0 and 1."""

    name: str
    tilt: float  # degrees, counter-clockwise
    blur: tuple[float, float]  # pixels, down the page and along the line
    gamma: float  # ink ** gamma: below 1 thickens strokes, above 1 thins them
    fog: float  # ink seen on blank paper
    contrast: float  # full ink minus blank paper
    noise: float  # standard deviation


# Neither mirror images nor negatives: no symmetric positive definite map undoes them.
DEVICES = (
    Device("flatbed", 0.0, (0.0, 0.0), 1.0, 0.0, 1.0, 0.02),
    Device("phone", 10.0, (0.5, 0.5), 1.0, 0.10, 0.70, 0.03),
    Device("fax", 0.0, (0.0, 0.5), 0.5, 0.0, 1.0, 0.08),
    Device("microfilm", -6.0, (0.4, 0.4), 1.6, 0.12, 0.75, 0.05),
)

DESCRIPTION = """\
Handwritten digits at four clients with different devices
---------------------------------------------------------

**What is real.** The {n_samples} images of 8 x 8 pixels and their labels, digits
written by 13 people. They are the test set of the UCI "Optical Recognition of
Handwritten Digits" data, as bundled with scikit-learn (`load_digits`).

**What is simulated.** The clients. Every image is assigned to exactly one device, at
random and stratified by digit, and passes through that device once: tilt, Gaussian
blur, tone curve, fog and loss of contrast, noise, and clipping to 0..16. Nothing was
scanned a second time, and who wrote a digit plays no part in the assignment.

{devices}

tilt: degrees, counter-clockwise. blur: standard deviations in pixels, vertical and
horizontal. gamma: exponent of the ink. fog: ink on blank paper. contrast: full ink
minus blank paper. noise: standard deviation. Ink is between 0 and 1 here, between 0
and 16 in `data`.

:Number of Instances: {n_samples}, in the order of `load_digits`
:Number of Attributes: 64
:Attribute Information: ink in one pixel of an 8 x 8 image, float in the range 0..16
:Missing Attribute Values: None
:Creator of the digits: E. Alpaydin, July 1998

**References**

- C. Kaynak (1995) Methods of Combining Multiple Classifiers and Their Applications
  to Handwritten Digit Recognition, MSc Thesis, Institute of Graduate Studies in
  Science and Engineering, Bogazici University.
- E. Alpaydin, C. Kaynak (1998) Cascading Classifiers, Kybernetika.
- https://archive.ics.uci.edu/ml/datasets/Optical+Recognition+of+Handwritten+Digits
"""


@validate_params({"random_state": ["random_state"]}, prefer_skip_nested_validation=True)
def load_digit_scanners(*, random_state=0):
    """Load handwritten digits seen through four different devices.

    The digits are real, those of :func:`sklearn.datasets.load_digits`; the devices
    are simulated: a flatbed scanner, a phone camera, a fax machine and microfilm.
    They differ in sharpness, tilt, tone and noise. Each image is seen by exactly one
    device, so no image is at two clients. All clients have all classes in nearly
    equal number.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=0
        Determines which device sees which image, and the noise. Pass an int for the
        same data on every call.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with these attributes:

        data : ndarray of shape (1797, 64)
            The images as rows, ink between 0 and 16.
        images : ndarray of shape (1797, 8, 8)
            The same as images.
        target : ndarray of shape (1797,)
            The digit, 0 to 9.
        client_ids : ndarray of shape (1797,)
            Name of the device that saw the image.
        feature_names : list of 64 str
            Names of the columns of ``data``.
        target_names : ndarray of shape (10,)
            The classes.
        client_names : list of 4 str
            Names of the devices.
        DESCR : str
            What is real and what is simulated, with the source of the digits.

    See Also
    --------
    make_shifted_clients : Simulated features with known domain and label shift.
    sklearn.datasets.load_digits : The digits themselves.

    Notes
    -----
    Row ``i`` shows image ``i`` of :func:`sklearn.datasets.load_digits`.

    Examples
    --------
    >>> from skslot.datasets import load_digit_scanners
    >>> scanners = load_digit_scanners()
    >>> scanners.data.shape
    (1797, 64)
    >>> scanners.client_names
    ['flatbed', 'phone', 'fax', 'microfilm']
    """
    rng = check_random_state(random_state)
    digits = load_digits()
    device_of_row = _stratified_partition(digits.target, len(DEVICES), rng)
    noise = rng.standard_normal(digits.images.shape)
    images = np.empty_like(digits.images)
    for index, device in enumerate(DEVICES):
        rows = device_of_row == index
        ink = _develop(digits.images[rows] / FULL_INK, device)
        ink += device.noise * noise[rows]
        images[rows] = FULL_INK * np.clip(ink, 0.0, 1.0)
    names = [device.name for device in DEVICES]
    return Bunch(
        data=images.reshape(len(images), -1),
        images=images,
        target=digits.target,
        client_ids=np.array(names)[device_of_row],
        feature_names=list(digits.feature_names),
        target_names=digits.target_names,
        client_names=names,
        DESCR=DESCRIPTION.format(n_samples=len(images), devices=_device_table()),
    )


def _stratified_partition(target, n_parts, rng):
    """Deal out rows to parts, evenly in all and within each class."""
    order = rng.permutation(len(target))
    order = order[np.argsort(target[order], kind="stable")]
    part = np.empty(len(target), dtype=np.intp)
    part[order] = np.arange(len(target)) % n_parts
    return part


def _develop(ink, device):
    """Do what a device does, except for its noise; the paper around is blank."""
    ink = ndimage.rotate(
        ink, device.tilt, axes=(1, 2), reshape=False, order=1, mode="grid-constant"
    )
    ink = ndimage.gaussian_filter(ink, (0.0, *device.blur), mode="constant")
    return device.fog + device.contrast * ink**device.gamma


def _device_table():
    rows = [[str(cell) for cell in row] for row in (Device._fields, *DEVICES)]
    return "::\n\n" + indent(text_table(rows), "    ")
