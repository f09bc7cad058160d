// Integer division that rounds up.
#pragma once

#include <concepts>

namespace carole {

// Returns ceil(a / b): how many pieces of size b cover a. a must not be negative; b must be
// positive.
template <std::integral A, std::integral B>
constexpr auto DivideUp(A a, B b) {
  return (a + b - 1) / b;
}

}  // namespace carole
