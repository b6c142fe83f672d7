// <thrust/tuple.h> on the CPU: tuples, as the standard library has them.
#pragma once

#include <thrust/pair.h>

#include <tuple>

namespace thrust {
using std::get;
using std::make_tuple;
using std::tie;
using std::tuple;
}  // namespace thrust
