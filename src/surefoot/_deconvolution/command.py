"""The command ``train deconvolution``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.options import Flag, Json, Out, Quiet, train_exits
from .._core.late import late


@train_exits(failed="diverged", kept="a checkpoint of the training")
@dataclass(frozen=True, kw_only=True)
class Train:
    """Train an unrolled network that sharpens blurred photographs; compare it on crops that it did not see.

    No theorem covers trained weights: sf.deconvolution.restore_checked and restore_certified fall back where they fail.
    DIR gets the network (net.safetensors) and its training (training/); with --data free also where its weights come from
    (network.json)."""

    system: ClassVar[str] = "deconvolution"
    out: Out
    data: Annotated[
        str | None,
        arg(
            metavar="DIR|free",
            help="Directory with bsd400_gray180.npz (photographs) and csf_kernels.npz (blur kernels), or 'free': the pictures of "
            "scikit-learn and scikit-image that may be passed on, and generated kernels.",
            help_behavior_hint="(default: scikit-learn's two photographs and generated kernels)",
        ),
    ] = None
    resume: Annotated[
        bool,
        arg(
            help="Continue the training in DIR with the settings stored there; only --epochs, --minutes and --device may be "
            "given anew.",
            help_behavior_hint="",
        ),
    ] = False
    epochs: Annotated[int, arg(metavar="N")] = 2000
    """Steps of training in total, each on --batch fresh crops."""
    minutes: Annotated[
        float | None,
        arg(metavar="NUMBER", help="Stop after so many minutes in total.", help_behavior_hint="(default: no limit)"),
    ] = None
    device: Annotated[str, arg(metavar="cpu|cuda")] = "cpu"
    """Where to train."""
    loss: Annotated[
        Literal["supervised", "objective"],
        arg(
            help="The squared error against the sharp crops, or the objective ½‖Bz - y‖² + λ‖Wz‖₁ (no sharp images used)."
        ),
    ] = "supervised"
    layers: Annotated[int, arg(metavar="N")] = 6
    """Layers of the network."""
    filters: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Channels of the learned prior step; 0 for the paper's wavelet shrinkage.",
            help_behavior_hint="(default: 32 with supervised, 0 with objective)",
        ),
    ] = None
    inverse: Annotated[
        str,
        arg(
            metavar="exact|K,L", help="Inverse in each layer: by FFT, or the paper's LD-Minv with K layers of degree L."
        ),
    ] = "exact"
    batch: Annotated[int, arg(metavar="N")] = 16
    """Crops in a step of training."""
    crop: Annotated[int, arg(metavar="N")] = 128
    """Pixels a side of the crops, 38 to 180."""
    learning_rate: Annotated[float, arg(metavar="NUMBER")] = 3e-3
    """Largest step of Adam."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the initial filters and the crops."""
    require_certificate: Flag = False
    """Do not train, and exit with 1: no theorem covers trained weights."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return late(f"{__package__}.command_run", "run_train")(self, held)
