"""Fields of messages: what travels as an array, and what as JSON."""

from dataclasses import dataclass, field, fields

from ._wire import WireArray


def message_type(cls):
    """Make a class of fields a frozen message."""
    cls = dataclass(frozen=True, eq=False, repr=False)(cls)
    for each in fields(cls):
        if is_array(each) or is_named_arrays(each):
            setattr(cls, each.name, _Numbers(each.name))
    return cls


def array(*shape, meaning, kinds="f", optional=False, **options):
    """Field that travels as an array; letters of its shape stand for sizes."""
    metadata = {
        "shape": shape,
        "meaning": meaning,
        "kinds": kinds,
        "optional": optional,
    }
    return field(metadata=metadata, **options)


def named_arrays(meaning):
    """Field that is a dict of arrays of any shape, and travels as these."""
    return field(metadata={"named_arrays": True, "meaning": meaning})


def fact(meaning, **options):
    """Field that travels as JSON."""
    return field(metadata={"meaning": meaning}, **options)


def client_field():
    """Field for the name of a client."""
    return fact("name of the client", default=None)


def encoder_field():
    """Field for the fingerprint of what made the features."""
    return fact("fingerprint of the encoder", default=None)


def is_array(field):
    """Whether a field is an array of a known shape."""
    return "shape" in field.metadata


def is_named_arrays(field):
    """Whether a field is a dict of arrays."""
    return "named_arrays" in field.metadata


class _Numbers:
    """Attribute for arrays: kept as they came, read in float64.

    A server may hold many messages, and one in float16 is a quarter of its numbers in
    float64.
    """

    def __init__(self, name):
        self.name = name

    def __get__(self, message, owner=None):
        return self if message is None else _decoded(vars(message)[self.name])

    def __set__(self, message, value):
        vars(message)[self.name] = value


def _decoded(value):
    if isinstance(value, dict):
        return {name: _decoded(part) for name, part in value.items()}
    return value.decode() if isinstance(value, WireArray) else value
