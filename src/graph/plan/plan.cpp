#include "src/graph/plan/plan.h"

#include <fmt/format.h>

#include "src/backend/ops/copies.h"
#include "src/core/hash.h"

namespace carole {

std::vector<const PlanStep*> Plan::AllSteps() const {
  std::vector<const PlanStep*> all;
  if (weight_casts) all.push_back(&*weight_casts);
  for (const PlanStep& step : steps) all.push_back(&step);
  return all;
}

int Plan::BlockOf(int representation) const {
  if (representation < 0) return -1;
  const Representation& r = representations[representation];
  return r.home == Representation::Home::kBlock ? r.index : -1;
}

TensorSpec Plan::SpecOf(int representation) const {
  const Representation& r = representations[representation];
  return {.shape = graph.shape(r.value), .dtype = r.dtype, .layout = r.layout};
}

uint64_t Plan::LayoutHash() const {
  uint64_t hash = kFnvOffset;
  for (size_t v = 0; v < graph.variables().size(); ++v) {
    const Variable& variable = graph.variables()[v];
    hash = Fnv1a64(fmt::format("{} {} {} {};", variable.name, variable.shape.ToString(),
                               variable_layouts[v].ToString(), variable.trainable),
                   hash);
  }
  for (const int variable : ready_order) hash = Fnv1a64(fmt::format("{};", variable), hash);
  return hash;
}

uint64_t Plan::ScheduleHash() const {
  uint64_t hash = kFnvOffset;
  for (const PlanStep& step : steps) {
    if (step.kind != op::kReorder && step.kind != op::kCasts)
      hash = Fnv1a64(fmt::format("{} {};", Name(step.kind), step.name), hash);
  }
  return hash;
}

}  // namespace carole
