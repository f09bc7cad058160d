#include "nets/layers/builder.h"

namespace carole::nets {

NetBuilder::Scope NetBuilder::Enter(std::string_view name) {
  std::string outer = graph_.scope();
  graph_.SetScope(Path(name));
  return Scope(graph_, std::move(outer));
}

std::string NetBuilder::Path(std::string_view name) const {
  return graph_.scope().empty() ? std::string(name) : graph_.scope() + "/" + std::string(name);
}

ValueId NetBuilder::AddVariable(Variable variable) {
  variable.name = Path(variable.name);
  return graph_.AddVariable(std::move(variable));
}

ValueId NetBuilder::EndPoint(const std::string& name, ValueId value) {
  graph_.AddEndPoint(name, value);
  if (options_.keep_end_points) graph_.MarkOutput(value);
  return value;
}

}  // namespace carole::nets
