"""Problem: regression on the diabetes table. Method: gradient descent on a 10-layer linear ResNet from zero weights.

Guarantee: with the modified identity and a sufficient α the run is certified from the start (linear-resnet/local); with Gaussian
transformations it is certified along the way, from the first iterate at which the theorem applies.
"""

import surefoot as sf

# Problem
train = sf.data.load("diabetes").standardise().centre_targets().train()
loss = sf.SquaredLoss(train.X, train.Y)

# Guarantee from the start
net = sf.nn.LinearResNet.modified_identity(*loss.shape, width=20, depth=10, alpha="sufficient", loss=loss)
cert = sf.certify(net, loss)
print(cert)
assert cert.holds
run = sf.descend(net, loss, certificate=cert, tolerance=1e-6)
print(f"{run.iterations} iterations, {cert.iterations_to(1e-6):,} guaranteed")
assert run.audit().holds

# Guarantee along the way
net = sf.nn.LinearResNet.gaussian(*loss.shape, width=100, depth=10, seed=0)
run = sf.descend(net, loss, "smooth", max_iterations=300, tolerance=1e-6, certify_every=10)
print(f"certified from iteration {run.certified_from} on")
print(run.audit())
assert run.certified_from is not None and run.audit().holds
