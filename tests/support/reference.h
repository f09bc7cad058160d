// A shared reference backend, for tests that need any backend.
#pragma once

#include <memory>

#include "src/backend/backend.h"

namespace carole::testing {

inline const Backend& Reference() {
  static const std::unique_ptr<Backend> backend = MakeReferenceBackend(1);
  return *backend;
}

}  // namespace carole::testing
