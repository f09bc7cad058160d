// The location of the test data.
#pragma once

#include <cstdlib>
#include <string>

namespace carole {

// Returns tests/data of the source tree, or the folder that the environment variable names. The
// bundle of tests/gpu/bundle.sh moves the data.
inline std::string TestData() {
  const char* moved = std::getenv("CAROLE_TEST_DATA");
  return moved != nullptr ? moved : CAROLE_TEST_DATA;
}

}  // namespace carole
