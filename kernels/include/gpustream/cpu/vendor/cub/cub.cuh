// <cub/cub.cuh> on the CPU: not there.
#error "the CPU backend has nothing for CUB: leave `cpu` out of this file's backends, or write the kernel without it for the CPU (#if defined(GS_CPU))"
