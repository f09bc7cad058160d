// The way from shards to batches: threads read, decode and preprocess ahead of the trainer.
//
//   consumer (Next)                 decode threads
//   plans batch b+depth into the    claim row after row of the planned batches, in order, by one
//   atomic counter; slot that it gives back         the thread that finishes a batch's last row
//   reports it ready
//
// The plan (which record goes to which row) and each row's random numbers depend on the options
// only, so the number of threads changes nothing, and with the number of ranks only the place of a
// row changes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "io/pipeline/dataset.h"
#include "io/pipeline/sample_options.h"
#include "src/core/dtype.h"

namespace carole::io {

struct PipelineOptions : SampleOptions {
  std::filesystem::path dataset_dir;
  std::filesystem::path
      work_dir;  // takes the record index when dataset_dir is read-only; may be empty
  std::string split;
  DType dtype = DType::kF32;  // of images; kU8: bytes that the net normalizes (NormalizationOf())
  int64_t local_batch = 0;
  int rank = 0;
  int size = 1;
  bool shuffle = false;
  bool repeat = false;  // epoch after epoch; otherwise one pass, then nullptr
  int64_t start_epoch =
      0;  // where a run goes on: Batch::next_epoch and next_position of the batch before.
  int64_t start_position = 0;  // Any position in [0, num_samples].
  // Records are shuffled in runs of this many neighbors, for disks that are slow at seeking
  // (sharding.h); 0: freely.
  int64_t shuffle_block_records = 0;
  // Records of an epoch that each rank may skip, with a warning; 0: the first bad one is an error.
  int64_t max_bad_records = 0;
  int threads = 1;
  int depth = 4;  // batches in memory, beside one that the consumer still has
};

// Finds the shards, loads or builds their index, starts the threads. Throws UsageError, DataError
// or DiskError.
std::unique_ptr<BatchSource> MakePipeline(const PipelineOptions& options);

}  // namespace carole::io
