"""Real data for the examples, the command line and your own experiments: `load`, `names`, `Data`; tables and arrays in memory:
`from_frame`, `from_arrays`; and rows that belong together: `parallel_rows`, `merge_rows`."""

from ._data.dataset import Data as Data
from ._data.errors import DataError as DataError
from ._data.errors import MissingLibraryError as MissingLibraryError
from ._data.errors import MissingSourceError as MissingSourceError
from ._data.frames import from_frame as from_frame
from ._data.given_arrays import from_arrays as from_arrays
from ._data.loading import load as load
from ._data.loading import names as names
from ._data.parallel_rows import merge_rows as merge_rows
from ._data.parallel_rows import parallel_rows as parallel_rows

__all__ = [
    "Data",
    "DataError",
    "MissingLibraryError",
    "MissingSourceError",
    "from_arrays",
    "from_frame",
    "load",
    "merge_rows",
    "names",
    "parallel_rows",
]
