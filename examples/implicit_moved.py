"""Problem: tell the digits 0 and 1 apart. Method: Adam on an infinite-depth ReLU network, and a finish of Gauss-Newton steps.

Guarantee: from the weights that they end with, an exact fit lies within the radius, and descent reaches it in the stated number
of iterations (theorem implicit/local). It is about trained weights: the features have moved by most of their norm.
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

# Method: any optimiser, watched
net = sf.nn.ImplicitReLU.gaussian(64, width=80)
watch = sf.watch(net, loss, every=50, share=1.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(200):
    optimizer.zero_grad()
    (0.5 * (net(X) - y).square().sum()).backward()
    optimizer.step()
    net.contract_()  # the equilibrium exists where gamma ||A|| < 1
    watch.step()
while watch.certified is None:
    sf.descend(net, loss, steps="gauss-newton", max_iterations=1, tolerance=0.0, progress=False)
    watch.step()
    watch.look()
for seen in watch.history:
    print(
        f"{seen.iteration} steps: loss {seen.loss:.2e}, features moved by {seen.moved[0]:.2f}, margin {seen.margin:.2e}"
    )

# Guarantee
cert = watch.certificate
assert cert is not None
print(cert)
print(f"an exact fit lies within {cert.radius:.1e}; {cert.iterations_to(1e-3):,} iterations to 1e-3 of this loss")
assert cert.holds and watch.history[-1].moved[0] > 0.5

# Metric: certified descent, its audit, and the independent checker
run = sf.descend(net, loss, certificate=cert, tolerance=1e-3, directory="run")
audit = run.audit()
print(audit)
assert audit.holds and run.certified
report = check("run")
print(report.outcome)
assert report.outcome.name == "ACCEPT"
