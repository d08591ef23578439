"""Problem: regression on the diabetes table. Method: torch.optim.SGD in a plain PyTorch loop.

Guarantee: the constant learning rate of the certificate contracts the gap by its rate at every step (two-layer/constant).
The audit checks afterwards that the loop kept every inequality of the proof, and that it did gradient descent at all.
"""

import torch

import surefoot as sf

# Problem
train = sf.data.load("diabetes").standardise().centre_targets().train()
loss = sf.SquaredLoss(train.X, train.Y)

# Method
net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=60, seed=1)
cert = sf.certify(net, loss, theorem="two-layer/constant")
print(cert)
optimizer = torch.optim.SGD(net.parameters(), lr=cert.step_size)
trace = sf.Trace(loss)
for _ in range(200):
    trace.record(net, cert.step_size)
    optimizer.zero_grad()
    (0.5 * (net(train.X) - train.Y).square().sum()).backward()
    optimizer.step()
trace.record(net)

# Metric
audit = sf.audit(trace, cert)
print(audit)
print(f"gap {trace.gaps[0]:.4g} -> {trace.gaps[-1]:.4g}; guaranteed at most {cert.bound(200):.4g}")
assert audit.holds
