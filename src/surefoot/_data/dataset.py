"""The data set that every loader returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from .arrays import real_array
from .errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """A data set: inputs, targets, class labels and a split into train and test rows.

    Attributes:
        X: inputs. A float64 tensor (N, n), one sample per row; a read-only `numpy.memmap` (N, n) of the
            file's own dtype for `.npy` files; or a mapping from image name to a float64 tensor (H, W) or
            (H, W, 3) with values in [0, 1] for photographs, whose sizes may differ.
        Y: targets, float64 (N, m), or None.
        labels: class labels, int64 (N,), or None.
        split: bool (N,), True marks a test row, or None where the source has no split (every row is a train
            row).
        name: name of the source.
        licence: terms of the data where known, or None.
        feature_names: one name per column of X, or None.
        class_names: what the labels 0, 1, ... stand for, or None.
        notes: what was done to the data: columns chosen, rows dropped, values filled in, a sentence each.

    Every method is pure: it returns a new `Data` and leaves this one as it was. Two `Data` compare by
    identity.

    Raises:
        DataError: a field has the wrong type, dtype, shape, or number of rows.

    Example:
        >>> data = sf.data.Data(torch.eye(3, dtype=torch.float64), labels=torch.tensor([0, 1, 1]))
        >>> data.one_hot(centred=False).Y[2].tolist()
        [0.0, 1.0]
    """

    X: Tensor | np.memmap | Mapping[str, Tensor]
    Y: Tensor | None = None
    labels: Tensor | None = None
    split: Tensor | None = None
    name: str = "data"
    licence: str | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.X, Tensor | np.memmap | Mapping):
            raise DataError(
                f"{self.name}: X is {type(self.X).__name__}, no tensor; sf.data.from_arrays(X, y) takes arrays and lists"
            )
        rows = len(self.X)
        if rows == 0:
            raise DataError(f"{self.name}: X has no rows; at least one sample is needed")
        if isinstance(self.X, Mapping):
            for key, image in self.X.items():
                if image.dtype != torch.float64 or image.ndim not in (2, 3):
                    raise DataError(
                        f"{self.name}: image {key!r} is {image.dtype} of shape {tuple(image.shape)}; "
                        "expected float64 of shape (H, W) or (H, W, 3)"
                    )
        elif self.X.ndim != 2 or self.X.shape[1] == 0:
            raise DataError(f"{self.name}: X has shape {tuple(self.X.shape)}; expected (N, n) with n >= 1")
        elif isinstance(self.X, Tensor) and self.X.dtype != torch.float64:
            raise DataError(f"{self.name}: X is {self.X.dtype}; convert it with X.to(torch.float64)")
        for field, dtype, ndim in (
            ("Y", torch.float64, 2),
            ("labels", torch.int64, 1),
            ("split", torch.bool, 1),
        ):
            value: Tensor | None = getattr(self, field)
            if value is None:
                continue
            if not isinstance(value, Tensor):
                raise DataError(
                    f"{self.name}: {field} is {type(value).__name__}, no tensor; sf.data.from_arrays(X, y) takes arrays and lists"
                )
            if value.dtype != dtype or value.ndim != ndim:
                raise DataError(
                    f"{self.name}: {field} is {value.dtype} of shape {tuple(value.shape)}; "
                    f"expected {dtype} with {ndim} dimension{'s' if ndim > 1 else ''}"
                )
            if value.shape[0] != rows:
                raise DataError(f"{self.name}: {field} has {value.shape[0]} rows, but X has {rows}; they must agree")
        if self.feature_names is not None and (
            isinstance(self.X, Mapping) or len(self.feature_names) != self.X.shape[1]
        ):
            raise DataError(f"{self.name}: {len(self.feature_names)} feature names do not fit the columns of X")
        if self.class_names is not None and (
            self.labels is None or int(self.labels.min()) < 0 or int(self.labels.max()) >= len(self.class_names)
        ):
            raise DataError(
                f"{self.name}: {len(self.class_names)} class names do not fit the labels, which count from 0"
            )

    def __repr__(self) -> str:
        parts = [repr(self.name)]
        if isinstance(self.X, Mapping):
            parts.append(f"X={len(self.X)} images")
        else:
            parts.append(f"X={tuple(self.X.shape)} {type(self.X).__name__}")
        if self.Y is not None:
            parts.append(f"Y={tuple(self.Y.shape)}")
        if self.labels is not None:
            parts.append(f"classes={self.labels.unique().numel()}")
        if self.split is not None:
            parts.append(f"test rows={int(self.split.sum())}")
        return f"Data({', '.join(parts)})"

    def in_memory(self) -> Data:
        """Read a memory-mapped X into a float64 tensor; a tensor X is returned as it is.

        Raises:
            DataError: X holds photographs, which are not rows of one matrix.
        """
        if isinstance(self.X, np.memmap):
            return replace(self, X=torch.from_numpy(real_array(self.X, f"{self.name}: X")))
        self._matrix("in_memory()")
        return self

    def train(self) -> Data:
        """The train rows: those where `split` is False, or every row where `split` is None.

        Raises:
            DataError: no row is a train row, or rows would have to be picked from a memory-mapped X.
        """
        if self.split is None:
            return self
        return self._rows(~self.split, "train()")

    def test(self) -> Data:
        """The test rows: those where `split` is True.

        Raises:
            DataError: there is no split, no row is a test row, or X is memory-mapped.
        """
        if self.split is None:
            raise DataError(
                f"{self.name}: test() needs a split, and this data has none; "
                "load it with test_fraction > 0, or set `split` with dataclasses.replace"
            )
        return self._rows(self.split, "test()")

    def standardise(self) -> Data:
        """Centre and scale every column by the mean and standard deviation (divisor N) of the train rows.

        Columns that are constant on the train rows (largest value equal to smallest, no tolerance) are
        dropped. The same map is applied to the test rows.

        Raises:
            DataError: every column is constant, the result overflows, or X is not a matrix in memory.
        """
        X = self._matrix("standardise()")
        train = self._train_mask("standardise()")
        rows = X[train]
        varies = rows.amax(0) != rows.amin(0)
        if not varies.any():
            raise DataError(f"{self.name}: standardise() found every column constant on the train rows")
        centred = X[:, varies] - rows[:, varies].mean(0)
        # A second pass removes the rounding of the first mean, large where the mean dwarfs the spread.
        centred = centred - centred[train].mean(0)
        # Dividing by the largest deviation first keeps the squares from overflowing or underflowing.
        scaled = centred / centred[train].abs().amax(0)
        standardised = scaled / scaled[train].square().mean(0).sqrt()
        names = self.feature_names
        if names is not None:
            names = tuple(name for name, kept in zip(names, varies.tolist(), strict=True) if kept)
        constant = int((~varies).sum())
        note = (
            f"standardising dropped {constant} of {len(varies)} columns, constant on the train rows" if constant else ""
        )
        return self._with_inputs(standardised, "standardise()", names, note)

    def whiten(self) -> Data:
        """Centre X and map it to principal axes of unit variance: on the N train rows XᵀX = N I.

        With the singular value decomposition X_c = U S Vᵀ of the centred train rows, every row is mapped by
        V S⁻¹ √N over the directions with S > max(N, n) eps S₁; the others are dropped. The least-squares
        problem on the result has condition number 1.

        Raises:
            DataError: all train rows are equal, the result overflows, or X is not a matrix in memory.
        """
        X = self._matrix("whiten()")
        train = self._train_mask("whiten()")
        count = int(train.sum())
        centred = X - X[train].mean(0)
        centred = centred - centred[train].mean(0)
        if not torch.isfinite(centred).all():
            raise DataError(f"{self.name}: whiten() overflowed; rescale the columns of X")
        _, sigma, Vh = torch.linalg.svd(centred[train], full_matrices=False)
        rounding = max(count, X.shape[1]) * torch.finfo(torch.float64).eps * sigma[0].item()
        kept = sigma > rounding
        if not kept.any():
            raise DataError(f"{self.name}: whiten() found all train rows equal; there is no direction to keep")
        whitened = centred @ (Vh[kept].mT * (count**0.5 / sigma[kept]))
        # The product above loses orthonormality in proportion to S₁ / S; one multiplication by the inverse
        # square root of the Gram matrix, which is near the identity, restores it to rounding level.
        whitened = whitened - whitened[train].mean(0)
        values, vectors = torch.linalg.eigh(whitened[train].mT @ whitened[train] / count)
        whitened = whitened @ (vectors * values.rsqrt()) @ vectors.mT
        dropped = X.shape[1] - int(kept.sum())
        note = ""
        if dropped:
            largest = f"{float(sigma[~kept].max()):.3g}" if not bool(kept.all()) else "0"
            note = (
                f"whitening dropped {dropped} of {X.shape[1]} directions, whose singular values are at most {largest}, within "
                f"the tolerance {rounding:.3g} (smallest kept: {float(sigma[kept].min()):.3g}): what the targets have there "
                "cannot be fitted"
            )
        return self._with_inputs(whitened, "whiten()", None, note)

    def one_hot(self, centred: bool = True) -> Data:
        """Set Y (N, C) from the labels: column j is the indicator of the j-th smallest label.

        Args:
            centred: subtract the class frequencies of the train rows, so that train Y has column means 0.

        Raises:
            DataError: there are no labels.
        """
        if self.labels is None:
            raise DataError(f"{self.name}: one_hot() needs class labels, and this data has none")
        train = self._train_mask("one_hot()")
        Y = (self.labels[:, None] == self.labels.unique()[None, :]).to(torch.float64)
        return replace(self, Y=Y - Y[train].mean(0) if centred else Y)

    def centre_targets(self) -> Data:
        """Subtract from Y its column means over the train rows.

        Raises:
            DataError: there are no targets.
        """
        if self.Y is None:
            hint = "one_hot() makes them from the labels" if self.labels is not None else "and it has no labels either"
            raise DataError(f"{self.name}: centre_targets() needs targets Y, and this data has none; {hint}")
        return replace(self, Y=self.Y - self.Y[self._train_mask("centre_targets()")].mean(0))

    def classes(self, *labels: int) -> Data:
        """Keep the rows with the given labels, renumbered 0, 1, ... in the order given. Y is dropped.

        Y is dropped because it may encode the old labels; call `one_hot()` afterwards.

        Raises:
            DataError: there are no labels, none was asked for, one is repeated or absent, or X is
                memory-mapped.
        """
        if self.labels is None:
            raise DataError(f"{self.name}: classes() needs class labels, and this data has none")
        present = self.labels.unique().tolist()
        if not labels or len(set(labels)) != len(labels):
            raise DataError(f"{self.name}: classes{labels} must name at least one label, each once")
        absent = [label for label in labels if label not in present]
        if absent:
            raise DataError(f"{self.name}: no row has label {absent[0]}; the labels are {present}")
        renumbered = torch.full_like(self.labels, -1)
        for new, old in enumerate(labels):
            renumbered[self.labels == old] = new
        names = None if self.class_names is None else tuple(self.class_names[label] for label in labels)
        kept = replace(self, Y=None, labels=renumbered, class_names=None)._rows(renumbered >= 0, "classes()")
        return replace(kept, class_names=names)

    def _matrix(self, caller: str) -> Tensor:
        if isinstance(self.X, Tensor):
            return self.X
        if isinstance(self.X, np.memmap):
            raise DataError(
                f"{self.name}: {caller} would read the whole memory-mapped X {self.X.shape}; "
                "call in_memory() first if it fits"
            )
        raise DataError(f"{self.name}: {caller} needs X as a matrix (N, n), but X holds {len(self.X)} images")

    def _train_mask(self, caller: str) -> Tensor:
        if self.split is None:
            device = self.X.device if isinstance(self.X, Tensor) else None
            return torch.ones(len(self.X), dtype=torch.bool, device=device)
        if self.split.all():
            raise DataError(
                f"{self.name}: {caller} takes its statistics from the train rows, and there are none; "
                "transform the whole data first and call test() afterwards"
            )
        return ~self.split

    def _rows(self, keep: Tensor, caller: str) -> Data:
        X = self._matrix(caller)
        if not keep.any():
            raise DataError(f"{self.name}: {caller} would leave no rows")
        return replace(
            self,
            X=X[keep],
            Y=None if self.Y is None else self.Y[keep],
            labels=None if self.labels is None else self.labels[keep],
            split=None if self.split is None else self.split[keep],
        )

    def _with_inputs(self, X: Tensor, caller: str, feature_names: tuple[str, ...] | None, note: str) -> Data:
        if not torch.isfinite(X).all():
            raise DataError(f"{self.name}: {caller} overflowed; rescale the columns of X")
        notes = (*self.notes, note) if note else self.notes
        return replace(self, X=X, feature_names=feature_names, notes=notes)
