"""Real data for the examples, the command line and your own experiments: `load`, `names`, `Data`."""

from ._data.dataset import Data as Data
from ._data.errors import DataError as DataError
from ._data.errors import MissingSourceError as MissingSourceError
from ._data.loading import load as load
from ._data.loading import names as names

__all__ = ["Data", "DataError", "MissingSourceError", "load", "names"]
