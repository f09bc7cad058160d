// How many pieces of one size cover a whole.
#pragma once

#include <concepts>

namespace carole {

// a / b, rounded up; of a that is not negative.
template <std::integral A, std::integral B>
constexpr auto DivideUp(A a, B b) {
  return (a + b - 1) / b;
}

}  // namespace carole
