// Gets the batch of another rank.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"

namespace carole::train {

// The inputs of a micro-batch, in addition to the net's weights.
struct CheckedBatch {
  // Only images or pixels, labels, `valid`, `first_sample` and `max_valid` are exchanged.
  io::Batch batch;
  double row_weight = 1;  // factor of the loss of each row
};

// Owns a copy of another rank's batch. The arrays of batches have the same sizes on all ranks.
class BatchExchange {
 public:
  // Returns the batch of the rank before this one. Its memory is valid until the next call of a
  // function of this object. Collective.
  const CheckedBatch& FromPreviousRank(collectives::Communicator& communicator,
                                       const CheckedBatch& mine, int64_t step);
  // The same for the batch of `rank`, on every rank.
  const CheckedBatch& FromRank(collectives::Communicator& communicator, int rank,
                               const CheckedBatch& mine, int64_t step);

 private:
  void Resize(const io::Batch& like);
  void SetBatch();

  // The members of a batch that are no arrays. There is no padding, as ranks exchange its bytes.
  struct Numbers {
    int64_t valid = 0, max_valid = 0, first_sample = 0;
    double row_weight = 0;
  };
  static Numbers NumbersOf(const CheckedBatch& checked);

  Numbers numbers_;
  std::vector<float> images_, soft_labels_;
  std::vector<uint8_t> pixels_;
  std::vector<int32_t> labels_;
  CheckedBatch received_;
};

}  // namespace carole::train
