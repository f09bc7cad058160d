// Fine-tuning: chooses which variables are trained.
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace carole::train {

// Freezes the variables that no scope matches. A scope is a regular expression; it must match the
// start of a variable's name followed by ":0", as TensorFlow names tensors (these are
// TF-Slim's trainable_scopes). If there are no scopes, nothing is frozen.
// Frozen variables become untrainable, so Differentiate() leaves out what only they would need.
// Call this before Differentiate(). Returns the frozen variables as indexes into
// graph.variables(). Logs a warning for each scope that matches no variable.
// Throws UsageError if a scope is not a regular expression, or if no scope matches a variable.
std::vector<int> FreezeOutside(Graph& graph, const std::vector<std::string>& trainable_scopes);

}  // namespace carole::train
