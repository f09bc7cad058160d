// The structure that NASNet and PNASNet share: a stem, a stack of cells, an auxiliary head in
// training, and the logits. Each convolution has a ReLU before it, batch norm after it, and no
// bias. nasnet.cpp describes the cells of the nets as tables.
#pragma once

#include "nets/layers/layers.h"

namespace carole::nets {

struct CellOp {
  enum Kind : uint8_t { kIdentity, kSeparable, kAverage, kMax } kind;
  int64_t window = 1;
};

// One operation of a cell, on one of the cell's states. A state is an intermediate result. State 0
// is the result of the previous cell, state 1 that of the cell before it.
struct CellBranch {
  CellOp op;
  size_t state;
};

struct CellDefinition {
  // The sum of the two branches of combination i is state 2 + i.
  CellBranch combinations[5][2];
  // The states from this one on are concatenated to the result of the cell.
  size_t first_output;
};

// After one third and after two thirds of the cells, a reduction halves height and width of the map
// and doubles the number of filters.
struct CellStackOptions {
  int64_t filters;  // output channels of a state before the first reduction
  int cells;        // number of cells, without those of the stem and without reduction cells
  int64_t stem_filters;
  const CellDefinition* cell;
  // The extra cell that does a reduction. If null, the normal cell at this position has stride 2.
  const CellDefinition* reduction = nullptr;
  // Which result is state 1 of the cell after a reduction cell. True: the same as state 1 of the
  // reduction cell. False: the last result before the reduction cell.
  bool skip_reduction_input = true;
  // Whether the stem keeps the size of the images. If not, it divides it by 8.
  bool small_images = false;
  // Drop path: the probability of keeping a path in the last cell, after drop_path_steps steps. It
  // is higher in earlier cells and in earlier steps.
  double drop_path_keep = 1;
  int64_t drop_path_steps = 250'000;
  double dense_keep = 0.5;  // dropout before the logits: probability of keeping an element
  BatchNormOptions batch_norm{.decay = 0.9997, .epsilon = 0.001, .gamma = true};
};

// Builds the net. The variables, their order and the end points are those of TF-Slim. Throws
// UsageError if the images are too small for the windows of the auxiliary head.
NetOutput BuildCellStack(NetBuilder& b, ValueId images, const CellStackOptions& options);

}  // namespace carole::nets
