// Fine-tuning: which variables are trained.
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace carole::train {

// Keeps those trainable whose name one of the scopes matches, as a regular expression at the start
// of the name with ":0" behind (TF-Slim's --trainable_scopes); the others become untrainable, so
// that Differentiate() leaves out whatever only they would need. Empty scopes: nothing is frozen.
// Returns the frozen ones, as indexes into graph.variables(). Before Differentiate(). Throws
// UsageError for a scope that is no regular expression, and when none matches anything; warns of
// one of several that does not.
std::vector<int> FreezeOutside(Graph& graph, const std::vector<std::string>& trainable_scopes);

}  // namespace carole::train
