"""Which messages of one step can be used together."""

from collections import Counter

from ..exchange import HeadWeights
from ..exchange._checks import kind_of_label
from ..exchange._errors import short


def find_misfits(messages):
    """What is wrong with the messages that do not fit the others, by node.

    ``messages`` has those of all nodes, in a fixed order. One trait after the other,
    the value that most have counts, and of values that equally many have, the first.
    """
    misfits = {}
    traits = {node: _traits(message) for node, message in messages.items()}
    for trait in next(iter(traits.values()), ()):
        values = {node: traits[node][trait] for node in traits if node not in misfits}
        common = Counter(values.values()).most_common(1)[0][0]
        owner = next(node for node, value in values.items() if value == common)
        for node, value in values.items():
            if value != common:
                misfits[node] = (
                    f"its {trait} is {short(value)}, that of client "
                    f"{short(messages[owner].client)} is {short(common)}."
                )
    return misfits


def _traits(message):
    """What a message must have in common with the others, by the words for it."""
    traits = {"number of features": message.n_features, "encoder": message.encoder}
    if isinstance(message, HeadWeights):
        shapes = {name: array.shape for name, array in message.weights.items()}
        traits["list of classes"] = tuple(message.classes)
        traits["round of training"] = message.n_rounds
        traits["head"] = tuple(sorted(shapes.items()))
    elif hasattr(message, "classes"):
        kinds = {kind_of_label(label) for label in message.classes}
        traits["kind of labels"] = " and ".join(sorted(kinds))
        traits["part for alignment"] = "present" if message.shrinkage.size else "absent"
    if hasattr(message, "covariance_type"):
        traits["covariance_type"] = message.covariance_type
    return traits
