"""Decide which columns of a table are features."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import log

import numpy as np
from scipy.special import gammaln

from .._utils import plain_spelling, quoted, shorten

# Names with a meaning: arrays with one value for each row ...
ROW_NAMES = ("y", "client", "split", "domain", "path")
# ... and arrays that describe the whole file, which tables do not have.
FILE_NAMES = ("X", "domains", "fingerprint", "dataset")
ONLY_IN_NPZ = ("domain", *FILE_NAMES)
# Names that programs write for a column without a name.
NO_NAME = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
# Texts for missing values, in addition to an empty cell.
MISSING = frozenset("? NA N/A NaN nan None null <NA> NaT".split()) | {""}

# With fewer rows, values may all differ by chance.
FEWEST_ROWS = 10
# Whole numbers that all differ are identifiers if random numbers from their range would
# contain so many equal pairs.
FEWEST_PAIRS = 5
# A column may equal the labels by chance if there are fewer ways to permute them.
FEWEST_WAYS = 1000
# Patient numbers are often this large; counts and measurements rarely are.
LARGE = 10**6
# Range where different whole numbers have the same float64, so it contains no counts.
LONG = 2.0**53, 1e30
# Names of identifiers, without spaces and punctuation.
THINGS = (
    "patient pat subject subj participant person case record sample row visit "
    "encounter accession study hospital"
).split()
NUMBERS = ("", "id", "ids", "nr", "no", "num", "number", "index", "key", "code")
IDENTIFIERS = frozenset(thing + number for thing in THINGS for number in NUMBERS)
IDENTIFIERS |= frozenset(
    "id pid ptid usubjid rid mrn ssn uid uuid guid index nr barcode".split()
)
# Names of labels, without spaces and punctuation.
LABELS = frozenset(
    "label labels target targets class classes classlabel outcome diagnosis diagnose "
    "diag dx disease ytrue groundtruth num".split()
)
# Names of site columns, without spaces and punctuation.
PLACES = "site hospital center centre clinic institution institute".split()
SITES = frozenset(p + end for p in PLACES for end in (*NUMBERS, "name", "s"))
FEW_VALUES = 20
# Roles of columns that are not features, by the argument that sets them.
ROLES = {
    "id_column": "an identifier",
    "labels": "labels",
    "client_column": "the sites of rows",
}
# Words of a name such as PatientID, patient_id or "patient id".
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")


@dataclass(frozen=True)
class ColumnChoice:
    """Choice of the columns of a table that are features.

    ``others`` are excluded. ``wanted`` has names and patterns of features; None means
    all columns that are not excluded. ``known`` are accepted without a check.
    """

    others: frozenset = frozenset()
    wanted: tuple | None = None
    known: frozenset = frozenset()

    @classmethod
    def of(cls, features=None, *others, known=()):
        """Make a choice from arguments: a name, a list of names or None."""
        names = frozenset(name for each in others for name in as_names(each))
        wanted = None if features is None else tuple(as_names(features))
        return cls(names, wanted, frozenset(as_names(known)))

    def features(self, path, names, index=()):
        """Return the names of the features, in the requested order."""
        check_names(path, names, self.others, self.explicit(names))
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{path} has more than one column {name!r}.")
        others = {*self.others, *ROW_NAMES}
        features = [name for name in names if name not in {*others, *index}]
        if self.wanted is not None:
            features = self._wanted(path, names, features, others)
        self._check_named(path, names, features)
        if not features:
            raise ValueError(f"{path} has no features, only the columns {names}.")
        return features

    def explicit(self, names):
        """Return the columns that were named as features, not matched by a pattern."""
        return set(names).intersection({*(self.wanted or ()), *self.known})

    def refuse_suspects(self, path, columns):
        """Refuse features that look like another role, unless they were named.

        ``columns`` has the values of each feature, numbers or text, by its name.
        """
        named, seen, roles = self.explicit(columns), [], {}
        for name, values in columns.items():
            role, why = _role(name, _known_values(values))
            if role is not None and name not in named:
                seen.append(f"column {name!r} looks like {ROLES[role]} ({why})")
                roles.setdefault(role, []).append(name)
        if not seen:
            return
        # there may be several identifiers, but one column of labels and one of sites
        kept = {role: n if role == "id_column" else n[:1] for role, n in roles.items()}
        options = [
            f"--{role.replace('_', '-')} {quoted(name)}"
            for role, names in kept.items()
            for name in names
        ]
        python = [f"{r}={n if len(n) > 1 else repr(n[0])}" for r, n in kept.items()]
        first = next(iter(roles.values()))[0]
        raise ValueError(
            f"{path}: {', '.join(seen)}. If so, say it: {' '.join(options)}, in Python "
            f"{', '.join(python)}; or {leave_out(first)}; {self._take_in(first)}."
        )

    def refuse_labels(self, path, y, columns):
        """Refuse features that duplicate the labels, unless they were named."""
        named = self.explicit(columns)
        _, codes = np.unique(_spelled_plainly(y), return_inverse=True)
        for name, values in columns.items():
            firsts = [] if name in named else _rows_of_copy(values, codes)
            if not len(firsts):
                continue
            pairs = [(_plain(values[row]), _plain(y[row])) for row in firsts]
            what = "has the same values as the labels"
            if any(value != label for value, label in pairs):
                texts = [f"{value} for {label}" for value, label in pairs[:3]]
                what = f"says the same as the labels, {', '.join(texts)}"
            raise ValueError(
                f"{path}: column {name!r} {what}, which would give them away; "
                f"{leave_out(name)}; {self._take_in(name)}."
            )

    def _wanted(self, path, names, candidates, others):
        features = {}
        for wanted in self.wanted:
            if wanted in names:
                if wanted in others:
                    raise ValueError(
                        f"{path}: {wanted!r} is named as a feature, but is the labels, "
                        "an identifier, ignored, or has a meaning of its own; leave it "
                        "out among the features."
                    )
                found = [wanted]
            else:
                found = [name for name in candidates if fnmatchcase(name, wanted)]
            if not found:
                raise ValueError(
                    f"{path} has no column that is {wanted!r} or matches it"
                    f"{_if_several(wanted, names, '--features')}; it has: "
                    f"{', '.join(names)}."
                )
            features |= dict.fromkeys(found)
        return list(features)

    def _check_named(self, path, names, features):
        named = self.others | self.explicit(names)
        for position, name in enumerate(names, start=1):
            if name in features and name not in named and NO_NAME.fullmatch(name):
                raise ValueError(
                    f"{path}: column {position} has no name ({name!r}), which is how "
                    "the index of a DataFrame is written. If it is no feature, "
                    f"{leave_out(name)}; else give it a name."
                )
            if name in ONLY_IN_NPZ and name not in named:
                raise ValueError(
                    f"{path} has a column {name!r}, which means something in .npz "
                    "files only: rename it (sites are called 'client'), or "
                    f"{leave_out(name)}."
                )

    def _take_in(self, name):
        known = ["*"] if self.wanted is None else list(self.wanted)
        options = " ".join(map(quoted, [*known, name]))
        return (
            f"if it is a feature, name it: features={[*known, name]} or --features "
            f"{options} (--columns in bench)"
        )


def as_names(names):
    """Return a list for one name, a sequence of names or None."""
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(map(str, names))


def check_names(path, names, asked_for, features=()):
    """Refuse missing names, and misspelled names with a meaning.

    Names that the user asked for, or named as features, may be similar to these.
    """
    for name in sorted(asked_for - set(names)):
        raise ValueError(
            f"{path} has no column {name!r}{_if_several(name, names)}; it has: "
            f"{', '.join(names) or 'nothing'}."
        )
    meant = {name.casefold(): name for name in (*ROW_NAMES, *FILE_NAMES)}
    for name in names:
        known = meant.get(name.strip().casefold(), name)
        if name not in {*asked_for, *features, known}:
            raise ValueError(
                f"{path} has {name!r}, which is nearly {known!r}: rename it, or "
                f"{leave_out(name)}."
            )


def leave_out(name):
    """Return how to exclude a column, in Python and on the command line."""
    return f"leave it out by ignore=[{name!r}] or --ignore {quoted(name)}"


def is_number(text):
    """Return whether a text is a finite number."""
    try:
        return bool(np.isfinite(float(text))) and "_" not in text
    except ValueError:
        return False


def _if_several(name, names, option="--ignore"):
    """Return the remedy for several names in one text."""
    parts = [part.strip() for part in re.split(r"[,;]", name)]
    if len(parts) == 1 or not set(parts) <= set(names):
        return ""
    texts = [quoted(part) for part in parts]
    if option == "--features":
        shown, how = " ".join([option, *texts]), ", with spaces between"
    else:
        shown, how = " ".join(f"{option} {text}" for text in texts), ""
    return (
        f", but {shorten(parts)}: name them one by one, in Python as a list, at the "
        f"command line as {shown}{how}"
    )


def _rows_of_copy(values, codes):
    """Return a row of each label if a column corresponds to the labels, else nothing.

    ``codes`` number the labels of rows. Rows with a missing value are skipped.
    """
    values = np.asarray(values)
    known = np.arange(len(values))
    if values.dtype.kind == "U":
        known = known[~np.isin(values, list(MISSING))]
        values = _spelled_plainly(values)
    found, firsts, which = np.unique(
        codes[known], return_index=True, return_inverse=True
    )
    firsts = known[firsts]
    are_labels = len(known) >= FEWEST_ROWS and 2 <= len(found) <= len(known) / 2
    are_labels &= _log_ways(np.bincount(which)) >= log(FEWEST_WAYS)
    if are_labels and np.array_equal(values[known], values[firsts][which]):
        return firsts if len(np.unique(values[firsts])) == len(found) else []
    return []


def _log_ways(sizes):
    """Compute the logarithm of the number of permutations of labels."""
    return gammaln(sizes.sum() + 1) - gammaln(sizes + 1).sum()


def _spelled_plainly(values):
    """Normalize the spelling of texts; numbers stay unchanged."""
    if values.dtype.kind != "U":
        return values
    texts, which = np.unique(values, return_inverse=True)
    return np.array([plain_spelling(text) for text in texts])[which]


def _plain(value):
    """Format a value or label."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _known_values(values):
    """Return the values that are not missing: numbers if possible, else texts."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return array[np.isfinite(array)].astype(np.float64)
    texts = [text for text in map(str, values) if text not in MISSING]
    if all(map(is_number, texts)):
        return np.array(texts, dtype=np.float64)
    return np.array(texts)


def _is_countable(values):
    """Return whether values are whole numbers or texts, not measurements."""
    return values.dtype.kind == "U" or bool(np.all(values == np.floor(values)))


def _why_identifier(name, values):
    """Return why a column seems to identify rows, or None."""
    n_values = len(values)
    if n_values < FEWEST_ROWS or not _is_countable(values):
        return None
    n_distinct, is_text = len(np.unique(values)), values.dtype.kind == "U"
    if (
        not is_text
        and LONG[0] <= np.abs(values).min() <= np.abs(values).max() < LONG[1]
    ):
        return "whole numbers of 16 digits and more"
    if n_distinct == n_values:
        kind = "text" if is_text else "whole number"
        what = f"no two of {n_values} rows have the same {kind}"
        if is_text:
            return what
        span = values.max() - values.min() + 1
        if n_values * (n_values - 1) / 2 / span >= FEWEST_PAIRS:
            return f"{what}, from {values.min():.0f} to {values.max():.0f}"
        if values.min() >= LARGE:
            return f"{what}, none below {LARGE:,}"
    # a person may have many rows, but then there still are many persons
    if _is_named(name, IDENTIFIERS, "id") and n_distinct >= FEWEST_ROWS:
        return f"by its name; {n_distinct} different values in {n_values} rows"
    return None


def _role(name, values):
    """Return the role that a column seems to have instead of a feature, and why."""
    reason = _why_identifier(name, values)
    if reason is not None:
        return "id_column", reason
    if not _is_countable(values):
        return None, None
    n_distinct = len(np.unique(values))
    why = f"by its name; number of different values: {n_distinct}"
    if 0 < n_distinct <= max(FEW_VALUES, len(values) / 2):
        if _is_named(name, LABELS, "label"):
            return "labels", why
        if _is_named(name, SITES):
            return "client_column", why
    return None, None


def _is_named(name, known, last=None):
    """Return whether a name is known, or ends in a word such as id."""
    plain = re.sub(r"[\W_]", "", name).casefold()
    return plain in known or [w.casefold() for w in WORD.findall(name)[-1:]] == [last]
