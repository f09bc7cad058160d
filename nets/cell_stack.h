// The machinery that NASNet and PNASNet share: a stem, a stack of cells, an auxiliary head in
// training, the logits. Convolutions have no bias; ReLU comes before, batch norm behind them.
#pragma once

#include "nets/layers/layers.h"

namespace carole::nets {

struct CellOp {
  enum Kind : uint8_t { kIdentity, kSeparable, kAverage, kMax } kind;
  int64_t window = 1;
};

// An operation on a state. State 0 is the result of the cell before, state 1 of the one before
// that.
struct CellBranch {
  CellOp op;
  size_t state;
};

struct CellKind {
  CellBranch combinations[5][2];  // the sums of two branches are the states 2 to 6
  size_t first_output;            // it and all later states make up the result
};

// A third and two thirds through the cells the map halves and the filters double.
struct CellStackOptions {
  int64_t filters;  // of a state before the first of these
  int cells;        // without those of the stem and the reduction cells
  int64_t stem_filters;
  const CellKind* cell;
  const CellKind* reduction = nullptr;  // stands before a cell; null: the cell itself reduces
  bool skip_reduction_input = true;     // state 1 behind a reduction cell is what it was before it
  bool small_images = false;            // the stem keeps their size; else it divides it by 8
  double drop_path_keep = 1;            // in the last cell, reached after so many steps
  int64_t drop_path_steps = 250'000;
  double dense_keep = 0.5;
  BatchNormOptions batch_norm{.decay = 0.9997, .epsilon = 0.001, .gamma = true};
};

// Variables, their order and the end points are TF-Slim's. Too small an image for the windows of
// the auxiliary head throws UsageError.
NetOutput BuildCellStack(NetBuilder& b, ValueId images, const CellStackOptions& options);

}  // namespace carole::nets
