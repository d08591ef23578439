"""Callbacks that write files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .callbacks import Callback, Record, Start
from .io import probe_writable, write_atomic
from .validate import folder

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

FIRST = ("iteration", "gap", "loss", "step", "rate")
"""Columns that stand first, in this order."""


class CSVWriter(Callback):
    """Writes a row for every iterate into a CSV file, whose columns are the names of the measurements.

    Numbers read back to the same floats; a cell is empty where there is no measurement. Each row is in the file at once. A run
    that is killed can leave its last row cut off; a resumed one drops that and every row that it reports again.

    Args:
        path: of the file. Where a run starts it must not exist; one that is resumed goes on in it.

    Raises:
        FileExistsError: when a run starts that is no resumed one, and the file exists.
        ValueError: when a run is resumed, and the file is no table with a column ``iteration``.
        OSError: it cannot be written.

    Example:
        >>> loss = sf.SquaredLoss(torch.eye(3).double(), torch.ones(3, 1).double())
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> run = sf.descend(net, loss, callbacks=[sf.callbacks.CSVWriter("gaps.csv")])
        >>> table = np.genfromtxt("gaps.csv", delimiter=",", names=True)
        >>> table["gap"].tolist() == run.gaps
        True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = folder("path", path)
        self._columns: list[str] = []
        self._whole = True

    def __repr__(self) -> str:
        return f"CSVWriter({str(self.path)!r})"

    def on_start(self, start: Start) -> None:
        """Make the file, or keep its rows before ``start.iteration``."""
        if not start.resumed and self.path.exists():
            raise FileExistsError(f"{self.path} exists; choose another file, or remove it")
        probe_writable(self.path)
        rows: list[dict[str, str]] = []
        self._columns, self._whole = [], True
        if self.path.exists():
            self._columns, rows = self._read(start.iteration)
        self._rewrite(rows)

    def on_iteration(self, record: Record) -> None:
        """Add its row."""
        self._write(record)

    def on_end(self, run: object, last: Record) -> None:
        """Add the last iterate, unless a write failed before it: a row of which a part was written is to stay the last one."""
        if last and self._whole:
            self._write(last)

    def _write(self, record: Record) -> None:
        new = [name for name in record if name not in self._columns]
        if new:
            rows = self._read()[1]
            order = {name: index for index, name in enumerate(FIRST)}
            self._columns = sorted([*self._columns, *new], key=lambda name: order.get(name, len(order)))
            self._rewrite(rows)
        self._whole = False
        with self.path.open("a", newline="") as file:
            file.write(_encoded(self._columns, [{name: repr(value) for name, value in record.items()}]))
        self._whole = True

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Replace the file as a whole."""
        head = [dict(zip(self._columns, self._columns, strict=True))] if self._columns else []
        write_atomic(self.path, _encoded(self._columns, [*head, *rows]).encode())

    def _read(self, end: int | None = None) -> tuple[list[str], list[dict[str, str]]]:
        """Columns and rows, those before the iteration ``end`` alone; a last line that was cut off is left out."""
        whole = self.path.read_text().rpartition("\n")[0]
        reader = csv.DictReader(io.StringIO(whole))
        columns = list(reader.fieldnames or ())
        if whole and "iteration" not in columns:
            raise ValueError(f"{self.path} has no column iteration: no run was written into it; choose another file")
        rows: list[dict[str, str]] = []
        for row in reader:
            iteration, cells = row["iteration"], row.values()
            if None in row or None in cells or not iteration.isdecimal():
                raise ValueError(
                    f"{self.path}, line {reader.line_num} is no row of a run; choose another file, or remove that line"
                )
            if end is None or int(iteration) < end:
                rows.append(row)
        return columns, rows


def _encoded(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()


class TensorBoardWriter(Callback):
    """Writes every measurement as a scalar for TensorBoard; needs the extra ``tensorboard``.

    Of a resumed run TensorBoard shows each iteration once: what an earlier process wrote of those that are reported again is
    marked as superseded.

    Args:
        directory: of the event files, as ``tensorboard --logdir`` takes it. It may hold those of other runs.

    Raises:
        ImportError: TensorBoard is not installed.

    Example:
        >>> loss = sf.SquaredLoss(torch.eye(3).double(), torch.ones(3, 1).double())
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> writer = sf.callbacks.TensorBoardWriter("logs/first")  # tensorboard --logdir logs
        >>> run = sf.descend(net, loss, callbacks=[writer])
        >>> from pathlib import Path
        >>> [file.name.split(".")[0] for file in Path("logs/first").iterdir()]
        ['events']
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = folder("directory", directory)
        self._writer: SummaryWriter | None = None
        self._open = _summary_writer()

    def __repr__(self) -> str:
        return f"TensorBoardWriter({str(self.directory)!r})"

    def on_start(self, start: Start) -> None:
        """Open an event file."""
        self._writer = self._open(str(self.directory), purge_step=start.iteration if start.resumed else None)

    def on_iteration(self, record: Record) -> None:
        """Add its scalars."""
        assert self._writer is not None
        for name, value in record.items():
            if name != "iteration":
                self._writer.add_scalar(name, value, int(record["iteration"]))

    def on_end(self, run: object, last: Record) -> None:
        """Add the last iterate, and close the file."""
        if last:
            self.on_iteration(last)
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _summary_writer() -> Any:
    """The class of torch; ``ImportError`` that names the extra."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f"TensorBoardWriter needs TensorBoard ({error}); install it: pip install 'surefoot[tensorboard]'"
        ) from error
    return SummaryWriter
