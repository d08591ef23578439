"""Feed-forward networks: plain ``torch.nn.Sequential`` models."""
