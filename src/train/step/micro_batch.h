// A rank's batch as the graph wants it: in pieces of the graph's batch size, checked, weighted.
#pragma once

#include <span>

#include "io/pipeline/dataset.h"
#include "src/graph/executable.h"

namespace carole::train {

// Rows [index * rows, (index + 1) * rows) of a batch that holds a whole number of such pieces.
io::Batch MicroBatch(const io::Batch& batch, int64_t index, int64_t rows);

// Of `pieces` those at the front that hold a sample on some rank, at least one: as many on every
// rank, since ranks that leave out more wait for the others for as long as those compute.
int64_t CountMicroBatches(const io::Batch& batch, int64_t pieces);

// Throws DataError for a label outside of [0, num_classes), InternalError for impossible counts.
void CheckBatch(const io::Batch& batch, int64_t num_classes);

// Fills the input "images".
void CopyImages(std::span<const float> from, const Executable& executable);

// Fills the inputs "images", "labels" and "weights": each row that counts weighs `row_weight` in
// the loss, the others 0.
void CopyIn(const io::Batch& batch, double row_weight, const Executable& executable);

}  // namespace carole::train
