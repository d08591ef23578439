"""The errors of the data loaders."""


class DataError(ValueError):
    """A data source cannot be used as it is: wrong format, wrong shape, missing or non-finite values."""


class MissingSourceError(DataError, FileNotFoundError):
    """A data source names neither a bundled data set nor an existing file or folder."""


class MissingLibraryError(DataError, ImportError):
    """A format needs a library that is not installed; the message says how to install it."""
