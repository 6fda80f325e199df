"""``skslot align``: the features of a site, moved towards the reference."""

import hashlib
from pathlib import Path

from ._exchange import (
    DEFAULT_TAU,
    add_features,
    add_output,
    announce,
    check_same_encoder,
    read_table,
    refuse_output,
)
from ._files import write_npz_atomically
from ._options import client_name, fraction_or
from ._site_maps import add_statistics, client_map, sent_statistics


def add_commands(commands):
    """Add ``align``."""
    align = commands.add_parser(
        "align",
        help="at a site: move features towards the reference of all sites",
        description="Move the features of a site towards the reference of all sites, "
        "and write them to an .npz file with all that stood beside them. The map is "
        "estimated from the rows of FEATURES, of a data set with a split from the "
        "training rows. For rows that came later, give the file that the site had "
        "sent as --statistics: a few rows say too little.",
        epilog="example: skslot align features.npz --reference reference.slot "
        "--client A --tau 0.4 -o aligned.npz",
    )
    add_features(align)
    align.add_argument(
        "--reference",
        type=Path,
        required=True,
        metavar="FILE.slot",
        help="what skslot aggregate wrote: the reference, or the model of all sites",
    )
    align.add_argument(
        "--client",
        required=True,
        type=client_name,
        metavar="NAME",
        help="name of the site; of a file with a column client, its rows are taken",
    )
    align.add_argument(
        "--tau",
        type=fraction_or(),
        help="strength of the alignment, from 0 to 1 (default: as the reference says, "
        "else 0.4)",
    )
    add_statistics(align)
    add_output(align, "FILE.npz", "aligned features")
    align.set_defaults(run=_align)


def _align(arguments):
    output = arguments.output
    if output.suffix != ".npz":
        raise ValueError(f"the name of the output must end in .npz, not {output.name}.")
    refuse_output(arguments, arguments.reference, arguments.statistics)
    table = read_table(arguments).of_client(arguments.client)
    reference = _load_reference(arguments.reference)
    check_same_encoder(table, reference, arguments.reference)
    tau = next(t for t in (arguments.tau, reference.tau, DEFAULT_TAU) if t is not None)
    if reference.tau not in (None, tau):
        print(f"tau = {tau:g}, although {arguments.reference} says {reference.tau:g}")
    moved_by = client_map(table, sent_statistics(arguments), reference, tau, arguments)
    aligned = {
        "X": moved_by.transform(table.X),
        "fingerprint": _aligned_fingerprint(table.encoder, reference, moved_by.tau),
    }
    if arguments.labels_file is not None:
        aligned["y"] = table.labels
    write_npz_atomically(output, {**table.others, **aligned})
    announce(output, f"{len(table.X)} rows, aligned with tau = {moved_by.tau:g}")


def _load_reference(path):
    from ..exchange import AlignedModel, AlignmentReference, MessageError, load_message

    message = load_message(path)
    if isinstance(message, AlignedModel):
        return message.reference
    if not isinstance(message, AlignmentReference):
        raise MessageError(
            f"this is of the kind {message.kind!r}, not a reference, which skslot "
            "aggregate -o writes.",
            path=path,
        )
    return message


def _aligned_fingerprint(encoder, reference, tau):
    """Tells aligned features from others, so that nobody aligns them again."""
    digest = hashlib.sha256(
        reference.mean.tobytes() + reference.covariance_triangle.tobytes()
    )
    digest.update(repr(float(tau)).encode())
    return f"{encoder or 'features'}+aligned:{digest.hexdigest()[:16]}"
