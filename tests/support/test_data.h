// Where the tests' data lies.
#pragma once

#include <cstdlib>
#include <string>

namespace carole {

// tests/data of the source tree, or where the environment says that it was moved
// (tests/gpu/bundle.sh).
inline std::string TestData() {
  const char* moved = std::getenv("CAROLE_TEST_DATA");
  return moved != nullptr ? moved : CAROLE_TEST_DATA;
}

}  // namespace carole
