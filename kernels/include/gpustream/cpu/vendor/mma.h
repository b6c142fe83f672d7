// <mma.h> on the CPU: not there.
#error "the CPU backend has nothing for the tensor cores (nvcuda::wmma): leave `cpu` out of this file's backends, or write the kernel without it for the CPU (#if defined(GS_CPU))"
