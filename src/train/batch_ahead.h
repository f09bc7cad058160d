// The batches of a device: while it computes one, the next one is copied to it.
#pragma once

#include <optional>

#include "io/dataset.h"
#include "src/graph/executable.h"

namespace carole::train {

class BatchAhead {
 public:
  // Outlives this; its inputs are "images", "labels" and "weights", in fp32.
  explicit BatchAhead(Executable& executable) : executable_(executable) {}

  // Copies the batch of the next run, unless Prepare() has; rows weigh as in CopyIn(). Returns it
  // as the host keeps it until this or Prepare() is called for the second time from now.
  io::Batch Bring(const io::Batch& batch, double row_weight);

  // Copies the batch of the run after that which is under way.
  void Prepare(const io::Batch& batch, double row_weight);
  // As the host keeps it: to be given to Bring(). Null where none is prepared.
  const io::Batch* prepared() const { return prepared_ ? &*prepared_ : nullptr; }

 private:
  io::Batch Send(const io::Batch& batch, double row_weight);

  Executable& executable_;
  std::optional<io::Batch> prepared_;
  double row_weight_ = 0;  // it was sent with
  bool is_there_ = false;  // what was sent last
};

}  // namespace carole::train
