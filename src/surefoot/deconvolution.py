"""Non-blind deconvolution: blurs, wavelets, Wiener filters, linearised ADMM with its certificate, networks, measures."""

from ._deconvolution.admm import LADMM, State
from ._deconvolution.counts.poisson_tv import PoissonTVSolution, poisson_tv
from ._deconvolution.counts.richardson_lucy import RichardsonLucySolution, richardson_lucy
from ._deconvolution.inner import InnerSolution, chebyshev, conjugate_gradients
from ._deconvolution.learned.safeguard import Restoration, restore_certified, restore_checked
from ._deconvolution.learned.training import train
from ._deconvolution.learned.training_data import TrainingData
from ._deconvolution.masked import MaskedBlur
from ._deconvolution.metrics import aligned_psnr, best_shift, psnr, ssim
from ._deconvolution.noise.estimate import NoiseEstimate, estimate_noise
from ._deconvolution.operators import Blur, PeriodicBlur, SpatiallyVaryingBlur, ValidBlur, normalised_kernel
from ._deconvolution.photo.deblur import Deblurred, deblur
from ._deconvolution.photo.kernel_makers import airy_kernel, defocus_kernel, gaussian_kernel, motion_kernel
from ._deconvolution.photo.kernels import prepared_kernel
from ._deconvolution.problem import DeconvolutionProblem, DualityGap, default_penalty
from ._deconvolution.solver import DeconvolutionSolution
from ._deconvolution.total_variation import TVADMM, TotalVariationProblem, TVState, variation_penalty
from ._deconvolution.wavelets import OrthonormalWavelet
from ._deconvolution.wiener import gradient_wiener, wiener
from ._learning.run import TrainRun

__all__ = [
    "LADMM",
    "TVADMM",
    "Blur",
    "Deblurred",
    "DeconvolutionProblem",
    "DeconvolutionSolution",
    "DualityGap",
    "InnerSolution",
    "MaskedBlur",
    "NoiseEstimate",
    "OrthonormalWavelet",
    "PeriodicBlur",
    "PoissonTVSolution",
    "Restoration",
    "RichardsonLucySolution",
    "SpatiallyVaryingBlur",
    "State",
    "TVState",
    "TotalVariationProblem",
    "TrainRun",
    "TrainingData",
    "ValidBlur",
    "airy_kernel",
    "aligned_psnr",
    "best_shift",
    "chebyshev",
    "conjugate_gradients",
    "deblur",
    "default_penalty",
    "defocus_kernel",
    "estimate_noise",
    "gaussian_kernel",
    "gradient_wiener",
    "motion_kernel",
    "normalised_kernel",
    "poisson_tv",
    "prepared_kernel",
    "psnr",
    "restore_certified",
    "restore_checked",
    "richardson_lucy",
    "ssim",
    "train",
    "variation_penalty",
    "wiener",
]
