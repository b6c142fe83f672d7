// <thrust/swap.h> on the CPU: the exchange of two values.
#pragma once

#include <utility>

namespace thrust {
using std::swap;
}  // namespace thrust
