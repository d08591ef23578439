"""Pictures and stacks of counts, whose noise is that of Poisson."""
