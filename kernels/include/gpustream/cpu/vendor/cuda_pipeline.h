// <cuda_pipeline.h> on the CPU: not there.
#error "the CPU backend has nothing for asynchronous copies (cuda_pipeline.h): leave `cpu` out of this file's backends, or write the kernel without it for the CPU (#if defined(GS_CPU))"
