"""How commands follow a plan that all sites share."""

from .._methods import FILE_METHODS

# What a plan says of messages, as options of ``summarize``.
SETTINGS = ("method", "dtype", "min_samples", "epsilon", "delta", "clip")


def plan_of_all_sites(arguments):
    """The plan that ``--plan`` names, for a file with the rows of all sites."""
    plan = _agreed_plan(arguments)
    if plan.client is not None:
        raise ValueError(
            f"{arguments.plan} is the plan of client {plan.client!r}, with its "
            "medians: take the one that was sent to all sites."
        )
    return plan


def _agreed_plan(arguments):
    """The plan that ``--plan`` names, unless other options contradict it."""
    from ..datasets import StudyPlan

    path = arguments.plan
    plan = StudyPlan.load(path)
    if arguments.labels not in (None, "y", plan.label):
        raise ValueError(
            f"{path} says that labels are in {plan.label!r}, which --labels "
            f"{arguments.labels} contradicts; leave it out."
        )
    if arguments.feature_columns is not None:
        raise ValueError(
            f"{path} says which columns are features: leave --features out."
        )
    return plan


def site_plan(arguments, learns):
    """The plan that ``--plan`` names, for the site whose file is read."""
    path = arguments.plan
    if arguments.encoder is not None:
        raise ValueError(f"{path} says what the features are: leave --encoder out.")
    plan = _agreed_plan(arguments)
    client = arguments.client or plan.client
    if plan.client not in (None, client):
        raise ValueError(
            f"{path} is the plan of client {plan.client!r}, with its medians, not of "
            f"{client!r}: take the one that was sent to all sites."
        )
    arguments.client = client
    if not learns:
        return plan
    at_site = plan.at_site(arguments.features, client, arguments.client_column)
    medians = {
        column.name: column.median
        for known, column in zip(plan.columns, at_site.columns, strict=True)
        if known != column
    }
    if medians:
        texts = (f"{name} {median:g}" for name, median in medians.items())
        print(f"medians of this site, for missing values: {', '.join(texts)}")
    return at_site


def settle(arguments):
    """Fill in the settings of ``summarize``, as the plan says or else by default."""
    from ..datasets import StudyPlan

    plan = None
    if arguments.plan is not None:
        plan = StudyPlan.load(arguments.plan)
        if arguments.labels is None and arguments.labels_file is None:
            arguments.labels = plan.label
    source = StudyPlan if plan is None else plan
    for name in SETTINGS:
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(source, name))
    if arguments.method not in FILE_METHODS:
        raise ValueError(
            f"{arguments.plan}: method must be one of {', '.join(FILE_METHODS)}, not "
            f"{arguments.method}."
        )
    return plan
