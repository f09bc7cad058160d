// A source that gives one random batch forever: benchmarks without the cost of input.
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
  DType dtype = DType::kF32;  // of images: kF32 or kU8
  int num_classes = 0;
  uint64_t seed = 0;
  int rank = 0;  // each rank has its own batch
  int size = 1;
};

// Values uniform in [-1, 1), or of all bytes; labels uniform over the classes. Every batch has the
// same content; epoch, position and counts go on as if the data set held one global batch.
std::unique_ptr<BatchSource> MakeSyntheticBatches(const SyntheticOptions& options);

}  // namespace carole::io
