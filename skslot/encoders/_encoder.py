"""Frozen encoder for the first step of a Pipeline, and its error about images."""

import copy
import os
from contextlib import nullcontext
from numbers import Integral

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import validate_data

from .._sklearn_compat import HasMethods, Interval, StrOptions, _fit_context
from .._utils import import_optional
from ._cache import FeatureCache

# The checkpoint behind the numbers of the SLOT-Align paper.
DEFAULT_TAG = "datacomp_xl_s13b_b90k"
N_SHOWN = 10  # bad images that an error lists


class FrozenEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Encode images as features of a pretrained model that is not trained further.

    The first step of a Pipeline: images -> ``FrozenEncoder`` ->
    :class:`~skslot.FederatedOTAligner` -> classifier. With ``cache_dir`` every image is
    encoded once, however often a search asks for it.

    Read more in the :doc:`User Guide </user_guide/encoders>`.

    Parameters
    ----------
    model : str or torch.nn.Module, default="ViT-B-32"
        Name of the model in ``source``, or a module that returns one vector per image.
        The prefixes ``"hf-hub:"`` and ``"local-dir:"`` take configuration and weights
        from a repository or a folder. A module is moved to ``device``, used in
        evaluation mode, and shared between clones.
    pretrained : str, path-like or None, default="datacomp_xl_s13b_b90k"
        The weights: a tag of open_clip, or a file (safetensors, or torch's format,
        which is read without running code from it). timm writes the tag into the name
        of the model, so only a file or another tag needs to be given. Without weights
        there is an error, never random ones. Ignored for a module and for names with a
        prefix.
    source : {"open_clip", "timm"}, default="open_clip"
        Where the name of the model comes from. open_clip models return the result
        of ``encode_image``, timm models the vector before the classifier.
    preprocess : callable, dict or None, default=None
        What turns an RGB PIL image into a tensor. None is the preprocessing of the
        model, and a dict changes entries of it, see ``preprocess_config_``. For a
        module, None hands it float32 pixels of shape (3, h, w), integers divided by
        their largest value and floats unchanged.
    batch_size : int, default=64
        Images per step. Only this many are in memory, for each of ``n_workers``.
    device : str, default="auto"
        Device of torch; "auto" is cuda or mps when there, else cpu.
    dtype : {"float32", "float16", "bfloat16"}, default="float32"
        Precision of the computation, by autocast. Features are float32 in any case.
    normalize : bool, default=False
        Whether features are scaled to length 1.
    image_shape : tuple of int, default=None
        Shape (h, w) or (h, w, c) of images that come as rows of a table; one of the
        numbers may be -1. None means that X holds images or paths.
    cache_dir : str or path-like, default=None
        Folder that keeps the features. None keeps nothing.
    n_workers : int, default=0
        Processes that read and preprocess images; 0 is the calling one.
    progress : bool, default=False
        Whether to show a progress bar with images per second.

    Attributes
    ----------
    preprocess_config_ : dict
        The preprocessing that is really used.
    n_features_in_ : int
        Number of pixels; only with ``image_shape``, and after ``fit`` with data.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the pixels, when all are strings.

    See Also
    --------
    FederatedOTAligner : The next step.
    skslot.encoders.ImageReadError : Raised for all bad images at once.

    Notes
    -----
    ``fit`` learns nothing and needs no data; ``transform`` works without it. Pickles
    hold no weights, unless the model is a module; a process loads a named model when it
    is first used, once for all encoders.

    Needs torch and open_clip: ``pip install "skslot[clip]"``.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skslot import FrozenEncoder
    >>> colours = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    >>> images = np.zeros((2, 8, 8, 3), dtype=np.uint8)
    >>> images[1, ..., 0] = 255
    >>> FrozenEncoder(colours).transform(images)
    array([[0., 0., 0.],
           [1., 0., 0.]], dtype=float32)
    """

    _parameter_constraints: dict = {
        "model": [str, HasMethods(["forward", "state_dict"])],
        "pretrained": [str, os.PathLike, None],
        "source": [StrOptions({"open_clip", "timm"})],
        "preprocess": [callable, dict, None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "dtype": [StrOptions({"float32", "float16", "bfloat16"})],
        "normalize": ["boolean"],
        "image_shape": [tuple, list, None],
        "cache_dir": [str, os.PathLike, None],
        "n_workers": [Interval(Integral, 0, None, closed="left")],
        "progress": ["boolean"],
    }

    def __init__(
        self,
        model="ViT-B-32",
        pretrained=DEFAULT_TAG,
        *,
        source="open_clip",
        preprocess=None,
        batch_size=64,
        device="auto",
        dtype="float32",
        normalize=False,
        image_shape=None,
        cache_dir=None,
        n_workers=0,
        progress=False,
    ):
        self.model = model
        self.pretrained = pretrained
        self.source = source
        self.preprocess = preprocess
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype
        self.normalize = normalize
        self.image_shape = image_shape
        self.cache_dir = cache_dir
        self.n_workers = n_workers
        self.progress = progress

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X=None, y=None):
        """Check the parameters; there is nothing to learn.

        Parameters
        ----------
        X : array-like, default=None
            Images; not looked at, but for their number of pixels with ``image_shape``.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : FrozenEncoder
            The encoder, unchanged.
        """
        if self.image_shape is not None and X is not None:
            validate_data(self, X)
        return self

    def transform(self, X):
        """Encode images.

        Parameters
        ----------
        X : sequence of n images
            Paths (list, array, Series or DataFrame of one column), PIL images, or an
            array of shape (n, h, w) or (n, h, w, c), uint8 or float in [0, 1]. With
            ``image_shape`` rows of pixels, of shape (n, n_pixels).

        Returns
        -------
        features : ndarray of shape (n, n_features_out), float32
            One row per image.

        Raises
        ------
        ImageReadError
            If images are missing, empty or broken; it names all of them.
        OSError
            If the cache cannot be read, or cannot be written when it must be.
        """
        self._validate_params()
        _, images = _torch_side()
        if self.image_shape is not None:
            X = validate_data(self, X, reset=False)
        items = images.as_items(X, self.image_shape)
        backbone = self._load()
        names = ("batch_size", "dtype", "n_workers", "progress")
        options = {name: getattr(self, name) for name in names}
        opened = nullcontext() if self.cache_dir is None else self._cache(backbone)
        with opened as cache:
            features = images.encode(items, backbone, cache, **options)
        return _to_length_one(features) if self.normalize else features

    @property
    def preprocess_config_(self):
        """The preprocessing that is really used.

        For named models the settings (mean, std, size, interpolation and so on), for a
        callable its name and a digest of what it does to a test image. Empty for a
        module without preprocessing. Loads the model.
        """
        return copy.deepcopy(self._load().preprocess_config)

    def fingerprint(self):
        """Name the feature space: equal names mean comparable features.

        Depends on architecture, weights, preprocessing, ``dtype`` and ``normalize``,
        not on where the weights were loaded from. Loads the model.

        Returns
        -------
        fingerprint : str
            16 hexadecimal digits.
        """
        return self._load().fingerprint(self.dtype, bool(self.normalize))

    def _load(self):
        return _torch_side()[0].load_backbone(
            self.model, self.pretrained, self.source, self.preprocess, self.device
        )

    @property
    def _n_features_out(self):
        _, images = _torch_side()
        shape = self.image_shape
        if shape is not None and hasattr(self, "n_features_in_"):
            shape = np.empty(self.n_features_in_).reshape(shape).shape  # resolves -1
        return images.n_features_out(self._load(), shape, self.dtype)

    def cache_info(self):
        """Count what the cache holds for this encoder, and how often it helped.

        Returns
        -------
        info : CacheInfo
            A named tuple with these fields:

            hits : int
                Images whose features were found, by this process.
            misses : int
                Images that had to be encoded, by this process.
            n_images : int
                Images whose features are kept, from all processes.
            n_bytes : int
                Size on disk.
            path : pathlib.Path
                The file.
        """
        with self._cache(self._load()) as cache:
            return cache.info()

    def cache_clear(self):
        """Drop the features of this encoder from the cache.

        Those of other models, weights or preprocessing stay.
        """
        with self._cache(self._load()) as cache:
            cache.clear()

    def _cache(self, backbone):
        if self.cache_dir is None:
            raise ValueError("there is no cache: set cache_dir to a folder.")
        # Not normalized, so that both kinds of features share what is expensive.
        return FeatureCache(self.cache_dir, backbone.fingerprint(self.dtype))

    def __sklearn_clone__(self):
        # A frozen module need not be copied, and may be large.
        light = copy.copy(self)
        light.model = light.preprocess = None
        twin = super(FrozenEncoder, light).__sklearn_clone__()
        return twin.set_params(model=self.model, preprocess=self.preprocess)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        if self.image_shape is None:
            tags.input_tags.two_d_array = False
            tags.input_tags.three_d_array = True
            tags.input_tags.string = True
        return tags


class ImageReadError(ValueError):
    """Images that are missing, empty or broken, all in one error.

    Parameters
    ----------
    failures : list of tuple
        Position in X, name of the image and reason, for each bad image. Kept as an
        attribute, in the order of X.
    n_images : int
        Number of images in X; an attribute as well.
    advice : str, default=""
        What became of the good images; an attribute as well.

    Examples
    --------
    >>> from skslot.encoders import ImageReadError
    >>> error = ImageReadError([(3, "a.png", "no such file")], n_images=5)
    >>> print(error)
    1 of 5 images cannot be read:
      row 3: a.png: no such file
    >>> [row for row, name, reason in error.failures]
    [3]
    """

    def __init__(self, failures, n_images, advice=""):
        # All arguments go to the base class, which is how exceptions are pickled.
        super().__init__(failures, n_images, advice)
        self.failures = sorted(failures)
        self.n_images = n_images
        self.advice = advice

    def __str__(self):
        noun = "image" if self.n_images == 1 else "images"
        lines = [f"{len(self.failures)} of {self.n_images} {noun} cannot be read:"]
        lines += [
            f"  row {row}: {name}: {reason}"
            for row, name, reason in self.failures[:N_SHOWN]
        ]
        if len(self.failures) > N_SHOWN:
            lines.append(f"  ... and {len(self.failures) - N_SHOWN} more")
        return "\n".join(lines + ([self.advice] if self.advice else []))


def _torch_side():
    """Import the modules that need torch and Pillow."""
    for package in ("torch", "PIL"):
        import_optional(package, "clip", "FrozenEncoder")
    from . import _backbones, _images

    return _backbones, _images


def _to_length_one(features):
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(lengths, np.finfo(np.float32).tiny)
