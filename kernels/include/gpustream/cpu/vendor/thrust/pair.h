// <thrust/pair.h> on the CPU: pairs, as the standard library has them.
#pragma once

#include <utility>

namespace thrust {
using std::make_pair;
using std::pair;
}  // namespace thrust
