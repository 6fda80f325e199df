"""Errors about weights and preprocessing: what was asked for, and what to do."""

from difflib import get_close_matches

# The checkpoint behind the numbers of the SLOT-Align paper.
DEFAULT_TAG = "datacomp_xl_s13b_b90k"


def no_weights_given(source, model):
    return ValueError(
        f"pretrained is empty, so {source} would give {model!r} random weights, and "
        "its features would mean nothing. Name a tag, or a file with weights."
    )


def unknown_name(parameter, name, where, known):
    close = get_close_matches(name, known, n=5, cutoff=0.4) or sorted(known)[:5]
    hint = f" Known are, for example, {', '.join(map(repr, close))}." if close else ""
    what = "a name" if parameter == "model" else "a tag or an existing file"
    return ValueError(
        f"{parameter}={name!r} is not {what} that is known to {where}.{hint} Nothing "
        "was downloaded."
    )


def not_downloaded(source, model, tag):
    name = f"{model!r}" + (f" with the tag {tag!r}" if tag else "")
    return OSError(
        f"the weights of the {source} model {name} are not on this computer and could "
        "not be fetched; nothing was downloaded. Without a network, copy the "
        'checkpoint here and pass pretrained="/path/to/checkpoint.safetensors", or '
        'for a folder with its configuration model="local-dir:/path/to/folder".'
    )


def unreadable(source, model, pretrained, error):
    weights = f"the weights {pretrained!r}" if pretrained else "the weights"
    return ValueError(
        f"{weights} could not be loaded into the {source} model {model!r}: {error}"
    )


def check_overrides(overrides, config):
    """Refuse entries of ``preprocess`` that the library would ignore."""
    unknown = sorted(set(overrides or ()) - set(config))
    if unknown:
        raise ValueError(
            f"preprocess has the unknown entries {unknown}; known are {list(config)}."
        )
