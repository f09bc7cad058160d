// The input pipeline: turns shards into batches, with threads that read, decode and preprocess
// ahead of the trainer. The essay in pipeline.cpp explains how.
//
// The plan (which record goes to which row) and the random numbers of each row depend only on the
// options. So the number of threads changes nothing. The number of ranks changes only which rank
// and row a record goes to.
#pragma once

#include <memory>
#include <string>

#include "io/pipeline/dataset.h"
#include "io/pipeline/sample_options.h"
#include "src/core/dtype.h"

namespace carole::io {

struct PipelineOptions : SampleOptions {
  std::string dataset_dir;  // a folder, or a comma list of folders, files and globs
  // The folder of the record index if dataset_dir is read-only; may be empty.
  std::string work_dir;
  std::string split;
  // The type of images. kU8: bytes, which the net normalizes (NormalizationOf()).
  DType dtype = DType::kF32;
  int64_t local_batch = 0;
  int rank = 0;
  int size = 1;  // number of ranks
  bool shuffle = false;
  bool repeat = false;  // true: epoch after epoch; false: one pass, then nullptr
  // The position at which a resumed run continues: next_epoch and next_position of its last Batch.
  // The position may be any in [0, num_samples].
  int64_t start_epoch = 0;
  int64_t start_position = 0;
  // 0: a full shuffle. Otherwise a block shuffle with blocks of this many consecutive records, for
  // disks with slow seeks (sharding.h).
  int64_t shuffle_block_records = 0;
  // How many bad records per epoch each rank may skip, with a warning. 0: the first bad record is
  // an error.
  int64_t max_bad_records = 0;
  int threads = 1;
  int depth = 4;  // batches in memory, not counting one that the trainer may still hold
};

// Finds the shards, loads or builds their index, and starts the threads. Throws UsageError for
// options that do not fit, DataError for bad shards, DiskError if something cannot be read or
// written.
std::unique_ptr<BatchSource> MakePipeline(const PipelineOptions& options);

}  // namespace carole::io
