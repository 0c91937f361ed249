"""What runs on NVIDIA's GPUs, by kernels that Triton compiles when they are first used."""
