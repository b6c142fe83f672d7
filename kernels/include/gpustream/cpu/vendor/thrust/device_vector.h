// <thrust/device_vector.h> on the CPU: a name for declarations, which host code alone makes values of.
#pragma once

#include <memory>

namespace thrust {
template <class T, class Allocator = std::allocator<T>>
class device_vector;
}  // namespace thrust
