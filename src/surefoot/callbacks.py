"""What to pass as ``callbacks=[...]``: a protocol for one's own, and writers of CSV and TensorBoard files."""

from ._core.callbacks import Callback, Record, Start
from ._core.writers import CSVWriter, TensorBoardWriter

__all__ = ["CSVWriter", "Callback", "Record", "Start", "TensorBoardWriter"]
