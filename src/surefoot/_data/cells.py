"""A table as it was read, before anything is decided about its columns."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from .errors import DataError

Target = str | SupportsIndex | Sequence[str | SupportsIndex] | None
"""A column by name or number (from 1; -1 is the last), several of them, or the last."""
Categories = Literal["error", "one-hot"]
Missing = Literal["error", "drop", "mean"]
LONGEST = 40
"""Characters of a name or a category that are shown."""


@dataclass(frozen=True)
class TableOptions:
    """What is to become of a table; `load` says what each means.

    Raises:
        DataError: a value that an option does not take.
    """

    target: Target = None
    separator: str | None = None
    decimal: Literal[".", ","] = "."
    categories: Categories = "error"
    missing: Missing = "error"

    def __post_init__(self) -> None:
        for name, known in (
            ("decimal", (".", ",")),
            ("categories", ("error", "one-hot")),
            ("missing", ("error", "drop", "mean")),
        ):
            if getattr(self, name) not in known:
                *others, last = map(repr, known)
                raise DataError(f"{name} is {getattr(self, name)!r}; expected {', '.join(others)} or {last}")
        items = [self.target] if isinstance(self.target, (str, SupportsIndex)) else self.target
        if items is not None and not (
            isinstance(items, Sequence) and all(isinstance(item, (str, SupportsIndex)) for item in items)
        ):
            raise DataError(f"target is {self.target!r}; expected the name of a column, its number, or a list of these")
        if self.separator is None:
            return
        if not isinstance(self.separator, str) or len(self.character) != 1 or self.character in '"\r\n\0':
            raise DataError(f"separator is {self.separator!r}; expected one character such as ';', or 'tab'")
        if self.character == self.decimal:
            raise DataError(f"separator and decimal are both {self.decimal!r}; they must differ")

    @property
    def character(self) -> str:
        """The separator; empty where it is to be found."""
        return {"tab": "\t", "\\t": "\t"}.get(self.separator or "", self.separator or "")

    def given(self, *names: str) -> str | None:
        """The first of these options, or of all, that is not its default, as a caller writes it."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and field.name in (names or (field.name,)):
                return f"{field.name}={value!r}"
        return None


@dataclass(frozen=True)
class Cells:
    """The cells of a table of N rows and n columns.

    Attributes:
        name: of the data.
        source: the same in errors, such as a path.
        names: of the columns, or None where the table has no header.
        numbers: (N, n) float64, NaN where a cell is missing, and in columns of text.
        texts: of each column of text its cells, None where one is missing.
        place: where a row stands, for people.
        spelled: how the first missing cell is written, as an error shows it; empty where it is not written.
        hint: what to do beside taking text as categories, as the end of a sentence.
    """

    name: str
    source: str
    names: tuple[str, ...] | None
    numbers: npt.NDArray[np.float64]
    texts: Mapping[int, Sequence[str | None]]
    place: Callable[[int], str]
    spelled: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        places: dict[str, int] = {}
        for index, name in enumerate(self.names or ()):
            first = places.setdefault(name, index)
            if first != index:
                raise DataError(
                    f"{self.source}: columns {first + 1} and {index + 1} are both called {shown(name)}; rename one of them"
                )

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """(N, n): which cells are missing."""
        missing = np.isnan(self.numbers)
        for column, texts in self.texts.items():
            missing[:, column] = [text is None for text in texts]
        return missing

    def column(self, index: int) -> str:
        """A column with its number from 1 and its name, for people."""
        return f"column {index + 1}" + (f" ({shown(self.names[index])})" if self.names else "")

    def label(self, index: int) -> str:
        """A column by its name, if it has one."""
        return shown(self.names[index]) if self.names else f"column {index + 1}"

    def rows(self, kept: npt.NDArray[np.bool_]) -> Cells:
        """Those rows alone; they keep their places."""
        places: list[int] = np.flatnonzero(kept).tolist()
        texts = {column: [texts[row] for row in places] for column, texts in self.texts.items()}
        return replace(self, numbers=self.numbers[kept], texts=texts, place=lambda row: self.place(places[row]))

    def find(self, target: Target) -> list[int]:
        """The columns that are the target, by index from 0.

        Raises:
            DataError: one that is not there, is named twice, or leaves no column to be an input.
        """
        if target is None:
            return [self.numbers.shape[1] - 1]
        one = isinstance(target, (str, SupportsIndex))
        found = self._indices(target) if one else [self._index(item) for item in target]
        if not found:
            raise DataError(f"{self.source}: target is {target!r}, which names no column")
        if len(set(found)) < len(found):
            raise DataError(f"{self.source}: target is {target!r}, which names {self.column(found[-1])} twice")
        if len(found) == self.numbers.shape[1]:
            raise DataError(f"{self.source}: target is {target!r}, which leaves no column for the inputs")
        return found

    def _indices(self, target: str | SupportsIndex) -> list[int]:
        """Of one name or number, or of several with commas between them."""
        parts = target.split(",") if isinstance(target, str) and target not in (self.names or ()) else [target]
        return [self._index(part.strip() if isinstance(part, str) and len(parts) > 1 else part) for part in parts]

    def _index(self, item: str | SupportsIndex) -> int:
        names, width = self.names or (), self.numbers.shape[1]
        if str(item) in names:
            return names.index(str(item))
        try:
            number = None if isinstance(item, bool) else int(item)
        except (ValueError, TypeError):
            number = None
        if number is not None and 0 < abs(number) <= width:
            return number - 1 if number > 0 else width + number
        if number is not None:
            raise DataError(
                f"{self.source}: target is {item!r}; columns are counted from 1 to {width}, and -1 is the last"
            )
        if not names:
            raise DataError(
                f"{self.source}: target is {item!r}, but the table has no header; give the number of the column, 1 to {width}"
            )
        near = difflib.get_close_matches(str(item), names, 1, 0.5)
        hint = f"did you mean {shown(near[0])}? Its" if near else "its"
        raise DataError(f"{self.source}: has no column {item!r}; {hint} columns are {listed(names)}")


def shown(text: str) -> str:
    """A name or a category in quotes, of bounded length."""
    return repr(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def listed(texts: Sequence[str], most: int = 10) -> str:
    """Some names or categories in quotes, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(map(shown, texts[:most])) + more
