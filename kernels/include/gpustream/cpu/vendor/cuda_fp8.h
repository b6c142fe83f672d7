#pragma once
#include <gpustream/fp8.cuh>
