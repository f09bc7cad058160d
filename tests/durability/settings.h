// The flags of carole_durability_tests.
#pragma once

#include <cstddef>
#include <limits>

namespace carole::testing {

struct Settings {
  bool exhaustive = false;  // --exhaustive: takes long
  // --first=N --last=N: the items of an exhaustive test that are checked, such as those of a sweep
  // that was interrupted.
  size_t first = 0, last = std::numeric_limits<size_t>::max();
};

Settings& TestSettings();

}  // namespace carole::testing
