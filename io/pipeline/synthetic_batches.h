// A source that returns the same random batch forever, for benchmarks without the cost of input.
#pragma once

#include <memory>

#include "io/pipeline/dataset.h"
#include "src/core/dtype.h"

namespace carole::io {

struct SyntheticOptions {
  int64_t local_batch = 0;
  int height = 0;
  int width = 0;
  int channels = 3;
  DType dtype = DType::kF32;  // type of the images: kF32 or kU8
  int num_classes = 0;
  uint64_t seed = 0;
  int rank = 0;  // each rank has a different batch
  int size = 1;  // number of ranks
};

// Makes the source. Values are uniform in [-1, 1), or in 0..255 for kU8. Labels are uniform over
// the classes. Every batch has the same content and is one epoch, as if the data set held one
// global batch. Records are not counted.
std::unique_ptr<BatchSource> MakeSyntheticBatches(const SyntheticOptions& options);

}  // namespace carole::io
