// <thrust/device_ptr.h> on the CPU: a name for declarations, which host code alone makes values of.
#pragma once

namespace thrust {
template <class T>
class device_ptr;
}  // namespace thrust
