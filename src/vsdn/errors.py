"""The errors that a user can meet. Each message is one sentence: what was expected, what was found, and where."""


class VsdnError(ValueError):
    """The user's input cannot be used; the command line shows only the message and exits with 2."""


class DataError(VsdnError):
    """A table that cannot be read, or holds values that no model can use."""


class RunError(VsdnError):
    """A run folder that cannot be read, written or resumed."""


class SettingsError(VsdnError):
    """A setting that does not exist or has an invalid value."""


class VsdnWarning(UserWarning):
    """An answer that should be treated with caution."""


class PriorWarning(VsdnWarning):
    """Forecasts from the prior of a model that was trained for forecasts by particles."""


class LeftOutWarning(VsdnWarning):
    """An answer about fewer series than the table has."""


class FewParticlesWarning(VsdnWarning):
    """An answer from particles of which few carry most of the weight."""
