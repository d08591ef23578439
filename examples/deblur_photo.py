"""Problem: a colour photograph with a known blur kernel and 1 % noise. Method: the linearised ADMM with fixed parameters.

Guarantee: theorem deconvolution/ladmm holds for the arrays at hand, so the solver converges; the duality gap bounds how far its
objective is from the optimum at most. What lies beyond the border is unknown to the model, so that borders do not ring.
What it means: the guarantee is about the objective, not about how near the picture is to the sharp one. That is measured here,
since the sharp picture is known. `surefoot deblur PHOTO --kernel K --out OUT.png` does the same with files.
"""

import torch
from sklearn.datasets import load_sample_images

import surefoot as sf
from surefoot.deconvolution import ValidBlur, deblur, gradient_wiener, psnr

NOISE = 0.01

# Problem: a diagonal smear of 9 pixels, and noise, on a part of a photograph
pixels = torch.from_numpy(load_sample_images().images[0] / 255.0)
latent = pixels.movedim(-1, 0)[:, 120:300, 100:320].contiguous()
kernel = torch.eye(9, dtype=torch.float64) / 9
blur = ValidBlur(kernel, (180, 220))
clean = blur.forward(latent)
photo = clean + NOISE * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
sharp = blur.crop(latent)

# Method and guarantee
found = deblur(photo, kernel, NOISE, prior="wavelet")  # without a noise level it is estimated
guess = deblur(photo, kernel).noise
assert found.gap is not None and found.change is not None
print(found.certificates[0])
print(f"noise {NOISE} (estimated: {guess:.4f}), {found.iterations} iterations in {found.seconds:.1f} s")
print(f"duality gap at most {found.gap:.2g} of the objective; V fell to {found.change:.2g} of its first value")
assert found.certified


# Measured: PSNR in dB
def quality(image: torch.Tensor) -> float:
    return float(psnr(image.double(), sharp).mean())


wiener = blur.crop(gradient_wiener(blur, photo, NOISE))
print(
    f"blurred {quality(photo):.2f} dB, gradient-Wiener {quality(wiener):.2f} dB, L-ADMM {quality(found.image):.2f} dB"
)
assert quality(found.image) > max(quality(photo) + 4.0, quality(wiener))

# Borders: as good as the rest within what the missing neighbours cost
edge = 12
border = torch.ones(sharp.shape[1:], dtype=torch.bool)
border[edge:-edge, edge:-edge] = False
errors = [float((found.image.double() - sharp)[:, part].square().mean()) for part in (border, ~border)]
print("mean square error within 12 pixels of the border over that inside:", round(errors[0] / errors[1], 2))

# The default prior is a heuristic that restores better, and a trained network goes further. No theorem covers either; what the
# network proposes is used where it passes a test. The one of the package saw this photograph in training, so that its picture
# here says nothing about others
plain = deblur(photo, kernel, NOISE)
net = sf.nn.LearnedDeconvolution.bundled()
proposed = deblur(photo, kernel, NOISE, net=net)
assert proposed.kept is not None and not plain.certified and not proposed.certified
kept, channels = proposed.kept
print(
    f"uncertified: {plain.prior} {quality(plain.image):.2f} dB, with the network {quality(proposed.image):.2f} dB",
    end="",
)
print(f" ({kept} of {channels} channels kept)")
assert quality(plain.image) > quality(found.image)
