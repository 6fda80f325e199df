"""One error for all images that cannot be read."""

N_SHOWN = 10


class ImageReadError(ValueError):
    """Images that are missing, empty or broken, all in one error.

    Parameters
    ----------
    failures : list of tuple
        Position in X, name of the image and reason, for each bad image.
    n_images : int
        Number of images in X.
    advice : str, default=""
        What became of the good images.

    Attributes
    ----------
    failures : list of tuple
        As given, in the order of X.
    n_images : int
        As given.
    advice : str
        As given.

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
