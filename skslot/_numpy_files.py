"""Reading NumPy's files that somebody else may have made."""

from pathlib import Path
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np


def load_numpy(path):
    """An array, or a dict of arrays; nothing in the file is run."""
    try:
        with open(path, "rb") as file:  # NumPy leaves it open when the file is damaged
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, BadZipFile, ZlibError) as error:
        raise ValueError(
            f"{path} cannot be read: it is damaged, holds Python objects or is no "
            f"{Path(path).suffix or 'NumPy'} file."
        ) from error
