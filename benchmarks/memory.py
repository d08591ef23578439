"""Peak memory of every system as a function of its sizes: each formula against what a process really needed at its peak.

A case runs in a process of its own, first at tiny sizes, which loads code, then at its sizes: the highest resident memory since
then, above that just before, is the measured peak. Inputs (data, weights, network) are there before and do not count; results do.
Formulas count float64 numbers; a power of two among them stands for buffers that do not grow: 2^23 for a block of rows, 2^19 for
what LAPACK's blocked routines take once, as measured at sizes of some hundreds.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from memory_cases import (
    Sizes,
    Work,
    backward,
    certifiable_implicit,
    certifiable_resnet,
    certifiable_steps,
    check_run,
    equilibrium_backward,
    feed_forward,
    feed_forward_certify,
    implicit_certify,
    implicit_descend,
    implicit_local_certify,
    inverse_train,
    ladmm,
    learned_forward,
    learned_inverse,
    learned_train,
    reduction,
    reduction_of_files,
    resnet_backward,
    resnet_certify,
    resnet_descend,
    softmax,
    step_sizes_certify,
    step_sizes_solve,
    step_sizes_train,
    stiefel,
    svd_train,
    two_layer,
    two_layer_certify,
    two_layer_descend,
)
from report import Report, parser

import surefoot as sf

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True)
class Case:
    """One operation.

    Attributes:
        name: system and operation.
        formula: the peak in float64 numbers; a space is a product where no other sign stands.
        prepare: makes the inputs and returns what is measured.
        small, sizes: those of the first run, and those measured.
        mapped: bytes of mapped files among the inputs, whose pages the operating system takes back when it needs them.
    """

    name: str
    formula: str
    prepare: Callable[[Sizes], Work]
    small: Sizes
    sizes: tuple[Sizes, ...]
    mapped: Callable[[Sizes], int] = lambda s: 0

    def floats(self, sizes: Sizes) -> float:
        """The formula at these sizes."""
        expression = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", self.formula).replace("^", "**")
        return eval(expression, {"min": min, "max": max}, dict(sizes))


CASES = (
    Case(
        "two-layer: reduction of rows in memory",
        "2 min(2^23, N (n+m)) + 3 (n+m)^2",
        reduction,
        {"N": 20, "n": 3, "m": 2},
        ({"N": 60_000, "n": 50, "m": 10}, {"N": 300_000, "n": 50, "m": 10}),
    ),
    Case(
        "two-layer: reduction of rows of a file",
        "3 min(2^23, N (n+m)) + 3 (n+m)^2",
        reduction_of_files,
        {"N": 20, "n": 3, "m": 2},
        ({"N": 60_000, "n": 50, "m": 10}, {"N": 300_000, "n": 50, "m": 10}),
        lambda s: 4 * s["N"] * (s["n"] + s["m"]),
    ),
    Case(
        "two-layer: certify",
        "5 (n+m) h + 6.5 n^2 + 3 n m",
        two_layer_certify,
        {"n": 4, "m": 2, "h": 20},
        ({"n": 50, "m": 50, "h": 10_000}, {"n": 600, "m": 10, "h": 620}),
    ),
    Case(
        "two-layer: descend, Gram engine",
        "4 (n+m) h + 2.1 (n+m)^2",
        two_layer_descend("gram"),
        {"n": 4, "m": 2, "h": 20},
        ({"n": 50, "m": 50, "h": 10_000}, {"n": 400, "m": 200, "h": 600}),
    ),
    Case(
        "two-layer: descend, weights engine",
        "3.5 (n+m) h + 2.1 (n+m)^2",
        two_layer_descend("weights"),
        {"n": 4, "m": 2, "h": 20},
        ({"n": 50, "m": 50, "h": 10_000}, {"n": 400, "m": 200, "h": 600}),
    ),
    Case(
        "linear-resnet: certify",
        "1.4 L m^2",
        resnet_certify,
        {"d": 3, "k": 2, "m": 8, "L": 3},
        ({"d": 20, "k": 10, "m": 200, "L": 40}, {"d": 20, "k": 10, "m": 400, "L": 10}),
    ),
    Case(
        "linear-resnet: descend, r + k dimensions",
        "1.4 L m^2 + 7 L (d+k)^2",
        resnet_descend,
        {"d": 3, "k": 2, "m": 8, "L": 3},
        ({"d": 20, "k": 10, "m": 200, "L": 40}, {"d": 100, "k": 50, "m": 200, "L": 20}),
    ),
    Case(
        "linear-resnet: autograd on N rows",
        "max((L + 4) N m, 2 L m^2)",
        resnet_backward,
        {"d": 3, "k": 2, "m": 8, "L": 3, "N": 10},
        ({"d": 20, "k": 10, "m": 200, "L": 20, "N": 1000}, {"d": 20, "k": 10, "m": 300, "L": 20, "N": 100}),
    ),
    Case(
        "implicit: certify, measured",
        "5.3 m^2 + 4.5 N m",
        implicit_certify("measured"),
        {"N": 6, "d": 4, "m": 20},
        ({"N": 600, "d": 10, "m": 800}, {"N": 300, "d": 10, "m": 1200}),
    ),
    Case(
        "implicit: certify, spectral",
        "max(6.6 m^2 + N m, 7 N^2 + 2 N m)",
        implicit_certify("spectral"),
        {"N": 6, "d": 4, "m": 20},
        ({"N": 300, "d": 10, "m": 800}, {"N": 1000, "d": 10, "m": 200}),
    ),
    Case(
        "implicit: certify, local",
        "max(9 m^2 + 3 N m, 8.6 N^2 + 8.4 N m)",
        implicit_local_certify,
        {"N": 6, "d": 4, "m": 20},
        ({"N": 100, "d": 10, "m": 800}, {"N": 600, "d": 10, "m": 600}, {"N": 1000, "d": 10, "m": 200}),
    ),
    Case(
        "implicit: descend",
        "9.3 m^2 + 15 N m",
        implicit_descend,
        {"N": 6, "d": 4, "m": 20},
        ({"N": 300, "d": 10, "m": 800}, {"N": 1200, "d": 10, "m": 500}),
    ),
    Case(
        "implicit: layer forward and backward",
        "4 m^2 + 4.7 N m",
        equilibrium_backward,
        {"N": 6, "d": 4, "m": 20},
        ({"N": 1000, "d": 10, "m": 600}, {"N": 2000, "d": 10, "m": 600}),
    ),
    Case(
        "feed-forward: certify",
        "7.6 (N k)^2 + 20 N h",
        feed_forward_certify,
        {"N": 4, "k": 2, "d": 5, "h": 8},
        (
            {"N": 60, "k": 10, "d": 20, "h": 64},
            {"N": 120, "k": 10, "d": 20, "h": 64},
            {"N": 1200, "k": 1, "d": 20, "h": 64},
        ),
    ),
    Case(
        "step-sizes: certify",
        "1.4 N b d",
        step_sizes_certify,
        {"N": 3, "b": 5, "d": 6, "h": 4, "T": 3},
        ({"N": 200, "b": 60, "d": 64, "h": 64, "T": 20}, {"N": 400, "b": 40, "d": 64, "h": 16, "T": 20}),
    ),
    Case(
        "step-sizes: training by sectors, any number T of iterations",
        "1.4 N b d + 39 h",
        step_sizes_train,
        {"N": 3, "b": 5, "d": 6, "h": 4, "T": 3},
        (
            {"N": 1000, "b": 40, "d": 64, "h": 16, "T": 20},
            {"N": 1000, "b": 40, "d": 64, "h": 16, "T": 40},
            {"N": 2, "b": 10, "d": 4, "h": 200_000, "T": 3},
        ),
    ),
    Case(
        "step-sizes: solving",
        "12.5 N d",
        step_sizes_solve,
        {"N": 3, "b": 5, "d": 6, "h": 4, "T": 3},
        ({"N": 2000, "b": 10, "d": 64, "h": 16, "T": 20}, {"N": 4000, "b": 20, "d": 64, "h": 16, "T": 20}),
    ),
    Case(
        "linalg.inv: forward and backward",
        "5.7 m^2 + 2^19",
        backward(sf.linalg.inv),
        {"m": 4, "n": 4},
        ({"m": 600, "n": 600}, {"m": 900, "n": 900}),
    ),
    Case(
        "linalg.pinv: forward and backward, m > n",
        "5.5 m n + 3 n^2 + 2^19",
        backward(sf.linalg.pinv),
        {"m": 6, "n": 4},
        ({"m": 800, "n": 400}, {"m": 1600, "n": 400}),
    ),
    Case(
        "linalg.polar: forward and backward, square",
        "10.6 m^2 + 2^19",
        backward(lambda A: sf.linalg.polar(A)[0]),
        {"m": 4, "n": 4},
        ({"m": 500, "n": 500}, {"m": 800, "n": 800}),
    ),
    Case(
        "linalg.svd: forward and backward of U, square",
        "15.5 m^2 + 2^19",
        backward(lambda A: sf.linalg.svd(A, full_matrices=False)[0]),
        {"m": 4, "n": 4},
        ({"m": 500, "n": 500}, {"m": 800, "n": 800}),
    ),
    Case(
        "inverse: LearnedInverse forward and backward, any depth K",
        "11.6 m^2",
        learned_inverse,
        {"m": 4, "K": 2},
        ({"m": 400, "K": 4}, {"m": 400, "K": 8}, {"m": 600, "K": 4}),
    ),
    Case(
        "inverse: training on N matrices, spectral",
        "4.1 N m^2",
        inverse_train,
        {"m": 6, "N": 3},
        ({"m": 100, "N": 30}, {"m": 100, "N": 60}),
    ),
    Case(
        "svd: training of LearnedSVD on N matrices, K layers",
        "(3 K + 6.7) N (m^2 + n^2) + 2^18",
        svd_train,
        {"m": 6, "n": 4, "N": 3, "K": 2},
        ({"m": 49, "n": 64, "N": 10, "K": 4}, {"m": 49, "n": 64, "N": 10, "K": 8}),
    ),
    Case(
        "svd: CayleySGD, m x r",
        "6 m r",
        stiefel,
        {"m": 6, "r": 2},
        ({"m": 2000, "r": 100}, {"m": 2000, "r": 300}),
    ),
    Case(
        "deconvolution: L-ADMM",
        "21 H W",
        ladmm,
        {"H": 32, "W": 32},
        ({"H": 400, "W": 400}, {"H": 600, "W": 600}),
    ),
    Case(
        "deconvolution: learned, forward in float32, F filters",
        "(14 + F / 6) H W + 2^20",
        learned_forward,
        {"H": 40, "W": 40, "F": 4},
        ({"H": 400, "W": 400, "F": 32}, {"H": 600, "W": 600, "F": 32}),
    ),
    Case(
        "deconvolution: training, K layers, F filters, B crops of c x c",
        "(13 + 0.92 F K) B c^2",
        learned_train,
        {"K": 1, "F": 4, "B": 1, "c": 38},
        ({"K": 2, "F": 16, "B": 64, "c": 80}, {"K": 4, "F": 16, "B": 32, "c": 80}),
    ),
    Case(
        "checker, fast: two-layer",
        "6 (n+m) h + 3.3 (n+m)^2",
        check_run(two_layer),
        {"n": 4, "m": 2, "h": 20},
        ({"n": 50, "m": 50, "h": 6000}, {"n": 400, "m": 100, "h": 600}),
    ),
    Case(
        "checker, exact: two-layer",
        "26 (n+m) h",
        check_run(two_layer, level="exact"),
        {"n": 4, "m": 2, "h": 20},
        ({"n": 30, "m": 20, "h": 1000}, {"n": 30, "m": 20, "h": 2000}),
    ),
    Case(
        "checker, fast: linear-resnet",
        "4.1 L (d+k)^2",
        check_run(certifiable_resnet),
        {"d": 2, "k": 2, "m": 4, "L": 2},
        ({"d": 100, "k": 30, "m": 130, "L": 12}, {"d": 100, "k": 30, "m": 130, "L": 24}),
    ),
    Case(
        "checker, fast: implicit/measured",
        "6.4 m^2 + 3 (N + d) m",
        check_run(certifiable_implicit, "implicit/measured"),
        {"N": 5, "d": 6, "m": 20},
        ({"N": 50, "d": 60, "m": 400}, {"N": 100, "d": 110, "m": 400}, {"N": 50, "d": 60, "m": 700}),
    ),
    Case(
        "checker, fast: feed-forward",
        "7.3 (N k)^2",
        check_run(feed_forward),
        {"N": 4, "k": 2, "d": 5, "h": 8},
        ({"N": 60, "k": 10, "d": 20, "h": 64}, {"N": 120, "k": 10, "d": 20, "h": 64}),
    ),
    Case(
        "checker, fast: step-sizes",
        "2.1 N b d",
        check_run(certifiable_steps),
        {"N": 3, "b": 5, "d": 4},
        ({"N": 100, "b": 40, "d": 64}, {"N": 200, "b": 40, "d": 64}),
    ),
    Case(
        "checker, fast: softmax regression, N rows",
        "8 N n",
        check_run(softmax),
        {"n": 4, "m": 2, "h": 20, "N": 30},
        ({"n": 20, "m": 3, "h": 50, "N": 20_000}, {"n": 20, "m": 3, "h": 50, "N": 40_000}),
    ),
)


# -- measuring -------------------------------------------------------------------------------------------------------------------


def resident(field: str) -> int:
    """A field of this process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def peak(index: int, sizes: Sizes) -> int:
    """Bytes above the inputs, in this process; freed memory goes back to the system at once."""
    for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        ctypes.CDLL(None).mallopt(option, 1 << 16)
    case = CASES[index]
    if sizes != case.small:
        case.prepare(case.small)()
    work = case.prepare(sizes)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = resident("VmRSS")
    kept = work()
    needed = resident("VmHWM") - before - case.mapped(sizes)
    del kept
    return needed


def measured(index: int, sizes: Sizes) -> int:
    """The same in a process of its own, a fork of this one, which has done nothing yet."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(peak, index, sizes).result()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    report = Report(parser(__doc__), arguments)
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # for the processes of the cases
        for index, case in enumerate(CASES):
            for sizes in (case.small,) if report.smoke else case.sizes:
                needed, expected = measured(index, sizes), 8.0 * case.floats(sizes)
                shown = " ".join(f"{name}={value:,}" for name, value in sizes.items())
                rows.append([case.name, case.formula, shown, needed / 2**20, expected / 2**20, needed / expected])
        tempfile.tempdir = None
    report.table(
        "Peak memory above the inputs, MiB",
        ["operation", "float64 numbers", "sizes", "measured", "formula", "ratio"],
        rows,
    )


if __name__ == "__main__":
    main()
