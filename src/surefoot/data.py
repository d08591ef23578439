"""Real data for the examples, the command line and your own experiments: `load`, `names`, `Data`; and rows that belong together:
`parallel_rows`, `merge_rows`."""

from ._data.dataset import Data as Data
from ._data.errors import DataError as DataError
from ._data.errors import MissingSourceError as MissingSourceError
from ._data.loading import load as load
from ._data.loading import names as names
from ._data.parallel_rows import merge_rows as merge_rows
from ._data.parallel_rows import parallel_rows as parallel_rows

__all__ = ["Data", "DataError", "MissingSourceError", "load", "merge_rows", "names", "parallel_rows"]
