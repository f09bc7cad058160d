// Sets the precision of a backend, for tests that are skipped if it is not available.
#pragma once

#include <string>

#include "src/backend/backend.h"
#include "src/core/error.h"

namespace carole::testing {

// Sets the backend's precision. Returns an empty string, or the reason if it is not available.
inline std::string PrecisionProblem(Precision precision, Backend& backend) {
  try {
    backend.SetPrecision(precision);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace carole::testing
