// The rows of a batch that are samples.
#pragma once

#include <algorithm>

#include "src/backend/backend.h"
#include "src/core/check.h"

namespace carole {

// Returns how many of the rows are samples (RunContext::valid_rows).
inline int64_t ValidRows(const RunContext& context, int64_t rows) {
  CAROLE_CHECK(context.valid_rows >= RunContext::kNoRows && context.valid_rows <= rows,
               "{} valid rows in a batch of {}", context.valid_rows, rows);
  return context.valid_rows == 0 ? rows : std::max<int64_t>(context.valid_rows, 0);
}

}  // namespace carole
