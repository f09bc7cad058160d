// What an Executable consists of. Private to this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/graph/executable.h"

namespace carole {

// A value in one layout and type, and where it lies: in a block of the arena, or as a variable's
// weight or gradient.
struct Executable::Representation {
  enum class Home : uint8_t { kBlock, kWeight, kGradient } home = Home::kBlock;
  ValueId value = kNone;
  Layout layout;
  DType dtype = DType::kF32;
  int index = -1;  // block, or index into graph.variables()
};

struct Executable::Step {
  std::unique_ptr<Kernel> kernel;
  OpKind kind;
  Phase phase;
  std::string name;
  std::vector<int> inputs;  // representations, -1 where absent
  std::vector<int> outputs;
  int workspace = -1;      // block
  std::vector<int> ready;  // gradients that are final after this step
  double milliseconds = 0;
  int64_t runs = 0;
};

}  // namespace carole
