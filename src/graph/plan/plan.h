// The plan of a step: its kernels in order, the layout and the memory of each value, and the
// layouts of variables. Compile() (compiler.h) makes a plan from a graph. An Executable
// (executable.h) gives a plan its memory and runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/graph/graph.h"
#include "src/graph/memory_plan.h"

namespace carole {

// A value in one layout and type, and its memory: a block of the arena, or a variable's weight or
// gradient in the VariableStore. A value has several representations if kernels disagree on
// layouts.
struct Representation {
  enum class Home : uint8_t { kBlock, kWeight, kGradient } home = Home::kBlock;
  ValueId value = kNone;
  Layout layout;
  DType dtype = DType::kF32;
  int index = -1;  // of the block, or of the variable in graph.variables()
};

// A kernel of the plan, with its inputs and outputs.
struct PlanStep {
  std::unique_ptr<Kernel> kernel;
  OpKind kind;
  Phase phase;
  std::string name;         // scope of the node
  std::vector<int> inputs;  // indices of representations, -1 for absent inputs
  std::vector<int> outputs;
  int workspace = -1;      // index of the block, -1: none
  std::vector<int> ready;  // gradients that are final after this step, as indices into ready_order
};

struct PlanStatistics {
  int kernels = 0;  // includes reorders and casts
  int activation_reorders = 0;
  int weight_reorders = 0;  // of weights and of their gradients
  size_t arena_bytes = 0;
  size_t peak_live_bytes = 0;  // lower bound of arena_bytes (PeakBytes())
};

// A value that can be moved, but not copied: it owns the kernels. `graph` and `backend` must
// outlive it.
struct Plan {
  const Graph& graph;
  const Backend& backend;
  // Makes the 16-bit copies of weights that kernels read. It runs before `steps`, unless somebody
  // else makes these copies (Executable::TakeWeightCopies()).
  std::optional<PlanStep> weight_casts = {};
  std::vector<PlanStep> steps = {};
  std::vector<Representation> representations = {};
  // The blocks of the arena. The steps in their lifetimes are positions in AllSteps().
  std::vector<MemoryBlock> blocks = {};
  std::vector<int> primary = {};  // index of the main representation of each value, or -1
  std::vector<Layout> variable_layouts = {};
  // The variables in the order in which their gradients become final.
  std::vector<int> ready_order = {};
  PlanStatistics statistics = {};

  // Pointers to all steps in the order in which they run: weight_casts if there are any, then
  // `steps`.
  std::vector<const PlanStep*> AllSteps() const;
  // The index of the representation's block, or -1 if it has none.
  int BlockOf(int representation) const;
  // Describes the representation's tensor.
  TensorSpec SpecOf(int representation) const;

  // A hash of everything that the offsets in a VariableStore of this plan depend on. Ranks compare
  // it.
  uint64_t LayoutHash() const;
  // A hash of the nodes in the order in which their kernels run, with the recomputed ones.
  uint64_t ScheduleHash() const;
};

}  // namespace carole
