"""The kernels, in Triton's own language."""
