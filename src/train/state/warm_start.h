// Loads weights of another run, for fine-tuning (a warm start) and for evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/weights_source.h"
#include "src/core/error.h"
#include "src/graph/variable_store.h"

namespace carole::train {

struct WarmStartOptions {
  std::vector<std::string> exclude_scopes;  // variables with these prefixes keep their values
  bool ignore_missing = false;              // variables that the file lacks keep their values
  // The variables of each classifier (nets::ClassifierVariables()). They keep their values if the
  // file has them for another number of classes.
  std::vector<std::vector<std::string>> classifiers = {};
};

// The result for each variable: lists of names.
struct WarmStartReport {
  std::vector<std::string> restored;
  std::vector<std::string> excluded;
  std::vector<std::string> missing;
  // Those of exclude_scopes that are no prefix of a name, with a suggestion if there is one:
  // "Logits (did you mean InceptionV3/Logits?)".
  std::vector<std::string> unused_scopes;
  std::vector<std::string> other_classes;     // variables for another number of classes
  int64_t file_classes = 0, net_classes = 0;  // these numbers, if other_classes is not empty
  std::vector<std::string> shape_mismatch;  // "vgg_16/fc8/weights (file [1,1,4096,1000], net …)"
  std::string first_in_file;                // the name of the file's first tensor
  std::string misfit_hint;  // WeightsSource::misfit_hint(), or which net the file holds
};

// Says which variables of the net the file lacks or has in another shape.
class MisfitError : public DataError {
  using DataError::DataError;
};

// Fills all variables of the store, running statistics too, from the variables of the file that
// have the same names. A classifier that the file has for another number of classes is left out. If
// anything else does not fit, throws MisfitError.
// Also throws DataError if values are not finite.
WarmStartReport WarmStart(const io::WeightsSource& reader, const WarmStartOptions& options,
                          VariableStore& store);

// Logs one line for each list that is not empty.
void LogWarmStartReport(const WarmStartReport& report, const std::string& path);

enum class WeightsKind : uint8_t { kTrained, kMovingAverages };

// Returns whether the file has moving averages of some variable.
bool HasMovingAverages(const io::WeightsSource& reader);

// Fills all variables of the store from the file, or from the moving averages in the file. Nothing
// may be missing. If the file also has moving averages that are not used, the log says so.
// Throws MisfitError and DataError as WarmStart() does.
void ReadVariables(const io::WeightsSource& reader, WeightsKind kind, VariableStore& store);

}  // namespace carole::train
