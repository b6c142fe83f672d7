// <thrust/functional.h> on the CPU: the operations of the standard library, and three of its own.
#pragma once

#include <functional>

namespace thrust {
using std::divides;
using std::equal_to;
using std::greater;
using std::less;
using std::minus;
using std::multiplies;
using std::negate;
using std::plus;

template <class T = void>
struct maximum {
    T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <class T = void>
struct minimum {
    T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class T = void>
struct identity {
    const T& operator()(const T& a) const { return a; }
};
}  // namespace thrust
