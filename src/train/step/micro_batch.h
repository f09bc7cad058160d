// Prepares a rank's batch for the graph: slices it into micro-batches of the graph's batch size,
// checks it, and copies it to the graph's inputs.
#pragma once

#include <span>

#include "io/pipeline/dataset.h"
#include "src/graph/plan/executable.h"

namespace carole::train {

// Returns the rows [index * rows, (index + 1) * rows) of a batch whose size is a multiple of
// `rows`. The result refers to the memory of `batch`.
io::Batch SliceMicroBatch(const io::Batch& batch, int64_t index, int64_t rows);

// Returns how many of the `max_count` micro-batches of a batch must be computed: all up to the last
// one that has a valid sample on some rank, and at least one. The number is the same on every rank.
// A rank that left out more would only wait for the others.
int64_t CountMicroBatches(const io::Batch& batch, int64_t max_count);

// Throws DataError if a label is not in [0, num_classes), and InternalError if the counts of the
// batch contradict each other.
void CheckBatch(const io::Batch& batch, int64_t num_classes);

// Copies `from` to the input "images". Both are (N,H,W,C), row-major.
void CopyImages(std::span<const float> from, const Executable& executable);

// Fills the inputs "images", "labels" (soft ones, if the graph has them) and "weights". The weight
// of a valid row in the loss is `row_weight`; that of the other rows is 0.
void CopyBatch(const io::Batch& batch, double row_weight, const Executable& executable);

}  // namespace carole::train
