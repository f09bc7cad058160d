// Weights of another run, for fine-tuning and evaluation.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/weights_source.h"
#include "src/graph/variable_store.h"

namespace carole::train {

struct WarmStartOptions {
  std::vector<std::string> exclude_scopes;  // variables whose names begin so are left as they are
  bool ignore_missing = false;              // so is what the file does not have
};

// Names of variables.
struct WarmStartReport {
  std::vector<std::string> restored;
  std::vector<std::string> excluded;
  std::vector<std::string> missing;
  std::vector<std::string> unused_scopes;  // of exclude_scopes: no variable's name begins so
  std::vector<std::string> other_shape;    // "vgg_16/fc8/weights (file [1,1,4096,1000], net …)"
};

// All variables of the store, moving statistics too, from those of the file with their names.
// Throws DataError that lists what is missing or of another shape.
WarmStartReport WarmStart(const io::WeightsReader& reader, const WarmStartOptions& options,
                          VariableStore& store);

// One line for each list that is not empty.
void LogReport(const WarmStartReport& report, const std::string& path);

enum class WeightsKind : uint8_t { kTrained, kMovingAverages };

// The same without exceptions; averages that the file has are not passed over without a word.
void ReadVariables(const io::WeightsReader& reader, WeightsKind kind, VariableStore& store);

}  // namespace carole::train
