"""The errors a user can meet. Each message is one sentence: what was wanted, what came, and where."""


class VsdnError(ValueError):
    """Something the user gave cannot be used; the command line shows the message alone and exits with 2."""


class DataError(VsdnError):
    """A table that cannot be read, or holds what no model can use."""


class RunError(VsdnError):
    """A run folder that cannot be read, written or resumed."""


class SettingsError(VsdnError):
    """A setting that does not exist or does not fit."""


class VsdnWarning(UserWarning):
    """An answer to be taken with care."""


class PriorWarning(VsdnWarning):
    """Forecasts from the prior of a model that was trained to be asked by particles."""


class LeftOutWarning(VsdnWarning):
    """An answer about fewer series than the table has."""


class FewParticlesWarning(VsdnWarning):
    """An answer by particles of which few have most of the weight."""
