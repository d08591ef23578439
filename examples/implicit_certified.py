"""Problem: tell the digits 0 and 1 apart. Method: gradient descent on an infinite-depth ReLU network.

Guarantee: the number of iterations to a loss of 1e-3 of the first, known before training (theorem implicit/spectral).
What it means: at the scale of the weights that this takes, the features hardly move. Certified is the training of what is in
effect a linear readout of random equilibrium features.
"""

import torch
from sklearn.datasets import load_digits

import surefoot as sf
from surefoot_check import check

# Problem: 20 images with unit-norm rows, labels 0 and 1
data, target = load_digits(n_class=2, return_X_y=True)
images, labels = torch.nn.functional.normalize(torch.tensor(data)), torch.tensor(target)
X, y = images[:20], labels[:20].double()
loss = sf.SquaredLoss(X, y)
assert not sf.data.parallel_rows(X)

# Method: the scale of the weights and gamma are chosen so that the theorem holds
net = sf.nn.ImplicitReLU.certifiable(X, y, width=80)
print(net, f"norm of A {net.norm_A():.4g}")

# Guarantee, before training, beside the paper's at the same weights
cert = sf.certify(net, loss)
print(cert)
paper = sf.certify(net, loss, theorem="implicit/gd")
print(f"{cert.iterations_to(1e-3):,} iterations to 1e-3; {paper.theorem} {paper.status.value}")
assert cert.holds

# Training, and what really happened
before = net.equilibrium(X).Z
run = sf.descend(net, loss, certificate=cert, tolerance=1e-3, directory="run")
audit = run.audit()
moved = float(torch.linalg.vector_norm(net.equilibrium(X).Z - before) / torch.linalg.vector_norm(before))
print(f"{run.iterations} iterations, status {run.status.value}; the features moved by {moved:.1e} of themselves")
print(audit)
assert audit.holds and run.gaps[-1] <= cert.bound(run.iterations)
accuracy = float(((net(images[20:]) > 0.5) == labels[20:].bool()).double().mean())
print(f"held-out accuracy {accuracy:.3f}")

# The independent checker
report = check("run")
print(report.outcome)
assert report.outcome.name == "ACCEPT"
