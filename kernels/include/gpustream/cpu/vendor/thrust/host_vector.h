// <thrust/host_vector.h> on the CPU: a vector of the standard library.
#pragma once

#include <vector>

namespace thrust {
template <class T, class Allocator = std::allocator<T>>
using host_vector = std::vector<T, Allocator>;
}  // namespace thrust
