// Appends representations, blocks and steps to a plan. Private to this room: compiler.cpp explains
// its use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/graph/plan/plan.h"

namespace carole {

class PlanBuilder {
 public:
  // Starts an empty plan. `variable_layouts` may be Any until a kernel chooses a layout.
  PlanBuilder(const Graph& graph, const Backend& backend, std::vector<Layout> variable_layouts);

  const Plan& plan() const { return plan_; }
  const Representation& at(int representation) const {
    return plan_.representations[representation];
  }
  // The main representation of a value that `reader` reads. Throws InternalError if no step has
  // computed it.
  int PrimaryFor(const Node& reader, ValueId value) const;
  void SetPrimary(ValueId value, int representation) { plan_.primary[value] = representation; }

  // Append a representation and return its index. AddBlock() makes a new block for it.
  int Add(Representation representation);
  int AddBlock(ValueId value, const Layout& layout, DType dtype);

  // Gives a weight without a layout its layout.
  void SetWeightLayout(int representation, const Layout& layout);

  // Keeps the representation's block until the next run: its memory is not reused.
  void Pin(int representation);

  // Sets the phase of the steps that are made from now on.
  void SetPhase(Phase phase) { phase_ = phase; }
  // Makes a step, with a block for the kernel's workspace. AddStep() also appends it to the plan.
  PlanStep MakeStep(std::unique_ptr<Kernel> kernel, OpKind kind, const std::string& name,
                    std::vector<int> inputs, std::vector<int> outputs);
  void AddStep(std::unique_ptr<Kernel> kernel, OpKind kind, const std::string& name,
               std::vector<int> inputs, std::vector<int> outputs);
  void SetWeightCasts(PlanStep step) { plan_.weight_casts = std::move(step); }
  void CountReorder(bool is_of_weight);

  // Plans the memory and returns the plan.
  Plan Finish();

 private:
  Plan plan_;
  std::vector<int> pinned_;  // blocks
  Phase phase_ = Phase::kForward;
};

}  // namespace carole
