// Whether this machine has a precision, for tests that are skipped where it has not.
#pragma once

#include <string>

#include "src/backend/backend.h"
#include "src/core/error.h"

namespace carole::testing {

// Makes the backend compute in it. Empty, or why that cannot be.
inline std::string PrecisionProblem(Precision precision, Backend& backend) {
  try {
    backend.SetPrecision(precision);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace carole::testing
