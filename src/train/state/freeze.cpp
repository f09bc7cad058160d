#include "src/train/state/freeze.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

std::regex Compile(const std::string& scope) {
  try {
    return std::regex(scope);
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format("[train] {}: not a regular expression: {}",
                                 Option("trainable_scopes", scope), error.what()));
  }
}

// TensorFlow's names end in ":0", the index of an operation's output.
bool MatchesStart(const std::string& name, const std::regex& scope) {
  return std::regex_search(name + ":0", scope, std::regex_constants::match_continuous);
}

}  // namespace

std::vector<int> FreezeOutside(Graph& graph, const std::vector<std::string>& trainable_scopes) {
  std::vector<Variable>& variables = graph.mutable_variables();
  std::vector<bool> stays(variables.size(), trainable_scopes.empty());
  for (const std::string& scope : trainable_scopes) {
    const std::regex pattern = Compile(scope);
    bool any = false;
    for (size_t v = 0; v < variables.size(); ++v) {
      if (!variables[v].trainable || !MatchesStart(variables[v].name, pattern)) continue;
      stays[v] = any = true;
    }
    if (!any)
      LogWarning("train", "{}: no trainable variable has this prefix",
                 Option("trainable_scopes", scope));
  }
  if (!trainable_scopes.empty() && std::ranges::count(stays, true) == 0) {
    throw UsageError(fmt::format(
        "[train] {}: no trainable variable has this prefix; the name of the first variable is {}",
        Option("trainable_scopes", trainable_scopes.front()),
        variables.empty() ? "none" : variables.front().name));
  }
  std::vector<int> frozen;
  for (size_t v = 0; v < variables.size(); ++v) {
    if (stays[v] || !variables[v].trainable) continue;
    variables[v].trainable = false;
    frozen.push_back(static_cast<int>(v));
  }
  return frozen;
}

}  // namespace carole::train
