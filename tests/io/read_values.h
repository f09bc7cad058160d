// Reads a whole tensor of a file of weights.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/weights_source.h"

namespace carole::io {

inline std::vector<float> ReadValues(const WeightsSource& reader, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(reader.shape(name).size()));
  reader.Read(name, values);
  return values;
}

}  // namespace carole::io
