#include "io/preprocessing.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/error.h"

namespace carole::io {

const PreprocessingEntry& FindPreprocessing(std::string_view name) {
  std::string names;
  for (const PreprocessingEntry& entry : kPreprocessings) {
    if (entry.name == name) return entry;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  throw UsageError(fmt::format(
      "[io.preprocessing] --preprocessing_name: unknown preprocessing: got '{}', want one of {}",
      name, names));
}

void CheckPreprocessingSize(const PreprocessingEntry& entry, int height, int width) {
  if (std::max(height, width) <= entry.max_size) return;
  throw UsageError(fmt::format(
      "[io.preprocessing] {}: images too large for it: got {}x{}, want at most {} a side; the crop "
      "must fit an image whose shorter side is 256",
      entry.name, height, width, entry.max_size));
}

}  // namespace carole::io
