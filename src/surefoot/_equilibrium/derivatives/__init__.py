"""The fixed point as an operation that torch differentiates any number of times, and derivatives cut short."""
