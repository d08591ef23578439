"""The noise level of a blurred picture whose kernel is known."""
