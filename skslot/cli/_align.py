"""``skslot align``: the features of a site, moved towards the reference."""

import hashlib
from dataclasses import fields
from pathlib import Path

import numpy as np

from .._utils import printable
from ._arguments import add_command, fraction_or, read_table
from ._outputs import announce, refuse_output, write_npz_atomically, writing
from ._site_maps import (
    DEFAULT_TAU,
    FOR_ALL_SITES,
    check_same_encoder,
    client_map,
    load_kind,
    sent_statistics,
)


def add_commands(commands):
    """Add ``align``."""
    command = add_command(commands, align)
    command.add_features()
    command.add_argument(
        "--reference",
        type=Path,
        required=True,
        metavar="FILE.slot",
        help="what skslot aggregate wrote: the reference, or the model of all sites",
    )
    command.add_client()
    command.add_argument(
        "--tau",
        type=fraction_or(),
        help="strength of the alignment, from 0 to 1 (default: as the reference says, "
        "else 0.4; a model of mixed effects always says it)",
    )
    command.add_statistics()
    command.add_output("FILE.npz", "aligned features")


def align(arguments):
    """At a site: move features towards the reference of all sites.

    They are written to an .npz file with all that stood beside them. The map is
    estimated from the rows of FILE, of a data set with a split from the training
    rows. For rows that came later, give the file that the site had sent as
    --statistics: a few rows say too little.

    example: skslot align features.npz --reference reference.slot --client A --tau 0.4
    -o aligned.npz
    """
    inputs = arguments.reference, arguments.statistics
    refuse_output(arguments, *inputs, suffix=".npz")
    what = "a reference, which skslot aggregate -o or --model"
    reference = load_kind(arguments.reference, FOR_ALL_SITES, what)
    reference = getattr(reference, "reference", reference)  # of a model of all sites
    table = read_table(arguments, made_for=reference).of_client(arguments.client)
    check_same_encoder(table, reference, arguments.reference)
    tau = _strength(reference, arguments)
    moved_by = client_map(table, sent_statistics(arguments), reference, tau, arguments)
    aligned = {
        **table.beside(),
        "X": moved_by.transform(table.X),
        "fingerprint": _aligned_fingerprint(table.encoder, reference, tau),
    }
    if arguments.labels_file is not None:
        aligned["y"] = table.y
    with writing(arguments):
        write_npz_atomically(arguments.output, aligned)
    announce(
        arguments.output, f"{len(table.X)} rows, aligned with tau = {moved_by.tau:g}"
    )


def _strength(reference, arguments):
    """Strength of the alignment; that of mixed effects is chosen by the server."""
    from ..exchange import MixedEffectsModel

    path = arguments.reference
    if isinstance(reference, MixedEffectsModel):
        if arguments.tau is not None:
            raise ValueError(
                f"{path} is a model of mixed effects, which says how far rows are "
                "moved: leave --tau out."
            )
        return reference.tau
    tau = next(t for t in (arguments.tau, reference.tau, DEFAULT_TAU) if t is not None)
    if reference.tau not in (None, tau):
        print(f"tau = {tau:g}, although {printable(path)} says {reference.tau:g}")
    return tau


def _aligned_fingerprint(encoder, reference, tau):
    """Tells aligned features from others, so that nobody aligns them again."""
    digest = hashlib.sha256()
    values = (getattr(reference, each.name) for each in fields(reference))
    for array in values:
        if isinstance(array, np.ndarray):
            digest.update(array.tobytes())
    digest.update(repr(float(tau)).encode())
    return f"{encoder or 'features'}+aligned:{digest.hexdigest()[:16]}"
