#include "src/graph/plan/plan_builder.h"

#include <utility>

#include "src/core/check.h"
#include "src/graph/plan/place_blocks.h"

namespace carole {

PlanBuilder::PlanBuilder(const Graph& graph, const Backend& backend,
                         std::vector<Layout> variable_layouts)
    : plan_{.graph = graph,
            .backend = backend,
            .primary = std::vector<int>(graph.num_values(), -1),
            .variable_layouts = std::move(variable_layouts)} {}

int PlanBuilder::PrimaryFor(const Node& reader, ValueId value) const {
  const int primary = plan_.primary[value];
  CAROLE_CHECK(primary >= 0, "{} {} reads a value that no node has computed", Name(reader.kind),
               reader.name);
  return primary;
}

int PlanBuilder::Add(Representation representation) {
  plan_.representations.push_back(std::move(representation));
  return static_cast<int>(plan_.representations.size() - 1);
}

int PlanBuilder::AddBlock(ValueId value, const Layout& layout, DType dtype) {
  plan_.blocks.push_back({.bytes = ByteSize(plan_.graph.shape(value), dtype, layout)});
  return Add({.value = value,
              .layout = layout,
              .dtype = dtype,
              .index = static_cast<int>(plan_.blocks.size() - 1)});
}

void PlanBuilder::SetWeightLayout(int representation, const Layout& layout) {
  Representation& weight = plan_.representations[representation];
  weight.layout = layout;
  plan_.variable_layouts[weight.index] = layout;
}

void PlanBuilder::Pin(int representation) {
  if (const int block = plan_.BlockOf(representation); block >= 0) pinned_.push_back(block);
}

PlanStep PlanBuilder::MakeStep(std::unique_ptr<Kernel> kernel, OpKind kind, const std::string& name,
                               std::vector<int> inputs, std::vector<int> outputs) {
  PlanStep step{.kernel = std::move(kernel),
                .kind = kind,
                .phase = phase_,
                .name = name,
                .inputs = std::move(inputs),
                .outputs = std::move(outputs),
                .ready = {}};
  if (step.kernel->workspace_bytes() > 0) {
    plan_.blocks.push_back({.bytes = step.kernel->workspace_bytes()});
    step.workspace = static_cast<int>(plan_.blocks.size() - 1);
  }
  return step;
}

void PlanBuilder::AddStep(std::unique_ptr<Kernel> kernel, OpKind kind, const std::string& name,
                          std::vector<int> inputs, std::vector<int> outputs) {
  PlanStep step = MakeStep(std::move(kernel), kind, name, std::move(inputs), std::move(outputs));
  for (int output : step.outputs) {
    if (output < 0 || at(output).home != Representation::Home::kGradient) continue;
    step.ready.push_back(static_cast<int>(plan_.ready_order.size()));
    plan_.ready_order.push_back(at(output).index);
  }
  plan_.steps.push_back(std::move(step));
}

void PlanBuilder::CountReorder(bool is_of_weight) {
  ++(is_of_weight ? plan_.statistics.weight_reorders : plan_.statistics.activation_reorders);
}

Plan PlanBuilder::Finish() {
  for (size_t v = 0; v < plan_.variable_layouts.size(); ++v) {
    Layout& layout = plan_.variable_layouts[v];
    if (layout.is_any()) layout = plan_.graph.variables()[v].plain_layout();
  }
  for (ValueId id : plan_.graph.outputs()) Pin(plan_.primary[id]);
  PlaceBlocks(plan_, pinned_);
  return std::move(plan_);
}

}  // namespace carole
