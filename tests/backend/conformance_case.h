// A case that conformance.h can run.
#pragma once

#include <ostream>
#include <string>

#include "src/backend/backend.h"
#include "tests/support/op_specs.h"

namespace carole::testing {

struct ConformanceCase {
  std::string name;
  OpSpec spec;
  double terms = 1;  // of the sum for one element of the output; they set the tolerance
  RunContext context;
};

inline void PrintTo(const ConformanceCase& c, std::ostream* out) { *out << c.name; }

}  // namespace carole::testing
