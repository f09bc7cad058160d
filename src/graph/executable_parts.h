// The parts of an Executable. Private to src/graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/graph/executable.h"

namespace carole {

// A value in one layout and type, and its memory: a block of the arena, or a variable's weight or
// gradient in the VariableStore. A value has several representations if kernels disagree on
// layouts.
struct Executable::Representation {
  enum class Home : uint8_t { kBlock, kWeight, kGradient } home = Home::kBlock;
  ValueId value = kNone;
  Layout layout;
  DType dtype = DType::kF32;
  int index = -1;  // of the block, or of the variable in graph.variables()
};

// A kernel of the plan, with its inputs and outputs.
struct Executable::Step {
  std::unique_ptr<Kernel> kernel;
  OpKind kind;
  Phase phase;
  std::string name;
  std::vector<int> inputs;  // indices of representations, -1 for absent inputs
  std::vector<int> outputs;
  int workspace = -1;      // index of the block, -1: none
  std::vector<int> ready;  // gradients that are final after this step, as indices into ready_order
  double milliseconds = 0;
  int64_t runs = 0;
};

}  // namespace carole
