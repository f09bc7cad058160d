// An output of an Executable that is copied to the host while the device goes on.
#pragma once

#include <memory>
#include <vector>

#include "src/graph/plan/executable.h"

namespace carole {

// Reused for one output of one executable, which must outlive it.
class OutputDownload {
 public:
  // Enqueues the copy of an output of the last run: fp32 or fp64 in plain layout. Does not block.
  void Begin(const Executable& executable, ValueId value);
  // Waits for the copy of the last Begin(). Returns the values in plain order.
  std::vector<double> Wait();

 private:
  std::unique_ptr<Download> download_;
  DType dtype_ = DType::kF32;
  size_t count_ = 0;
};

}  // namespace carole
