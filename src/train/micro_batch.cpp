#include "src/train/micro_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::train {
namespace {

template <typename T>
void CopyAs(const io::Batch& batch, double row_weight, const Tensor& images,
            const Tensor& weights) {
  // A GPU would wait for one core.
  const float* from = batch.images.data();
  T* to = images.as<T>();
  const bool is_there = static_cast<const void*>(from) == to;  // it is sent once more
  const int64_t count = is_there ? 0 : static_cast<int64_t>(batch.images.size());
#pragma omp parallel for simd schedule(static) if (count > (1 << 18))
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  std::fill_n(weights.as<T>(), weights.size(), T(0));
  std::fill_n(weights.as<T>(), batch.valid, static_cast<T>(row_weight));
}

}  // namespace

io::Batch MicroBatch(const io::Batch& batch, int64_t index, int64_t rows) {
  const auto all_rows = static_cast<int64_t>(batch.labels.size());
  CAROLE_CHECK(rows > 0 && (index + 1) * rows <= all_rows, "piece {} of {} rows in a batch of {}",
               index, rows, all_rows);
  const size_t pixels = batch.images.size() / batch.labels.size();
  const auto first = static_cast<size_t>(index * rows), count = static_cast<size_t>(rows);
  io::Batch piece = batch;
  piece.images = batch.images.subspan(first * pixels, count * pixels);
  piece.labels = batch.labels.subspan(first, count);
  piece.valid = std::clamp<int64_t>(batch.valid - index * rows, 0, rows);
  piece.first_sample = batch.first_sample + index * rows;
  return piece;
}

void CheckBatch(const io::Batch& batch, int64_t num_classes) {
  CAROLE_CHECK(batch.valid <= static_cast<int64_t>(batch.labels.size()) && batch.global_valid > 0,
               "a batch with {} valid rows of {}, {} over all ranks", batch.valid,
               batch.labels.size(), batch.global_valid);
  for (int32_t label : batch.labels) {
    if (label >= 0 && label < num_classes) continue;
    throw DataError(
        fmt::format("[train] epoch {}: label out of range: got {}, want 0 to {}; look "
                    "at --labels_offset and at the number of classes",
                    batch.epoch, label, num_classes - 1));
  }
}

void CopyIn(const io::Batch& batch, double row_weight, const Executable& executable) {
  const Tensor images = executable.Input("images");
  const Tensor labels = executable.Input("labels");
  const Tensor weights = executable.Input("weights");
  CAROLE_CHECK_EQ(static_cast<int64_t>(batch.images.size()), images.size(), "pixels of a batch");
  CAROLE_CHECK_EQ(static_cast<int64_t>(batch.labels.size()), labels.size(), "labels of a batch");
  if (batch.labels.data() != labels.as<int32_t>())
    std::copy(batch.labels.begin(), batch.labels.end(), labels.as<int32_t>());
  if (images.dtype == DType::kF64) {
    CopyAs<double>(batch, row_weight, images, weights);
  } else {
    CopyAs<float>(batch, row_weight, images, weights);
  }
}

io::Batch Send(const io::Batch& batch, double row_weight, Executable& executable) {
  CopyIn(batch, row_weight, executable);
  const Tensor images = executable.Input("images"), labels = executable.Input("labels");
  executable.Send();
  io::Batch kept = batch;
  kept.images = {images.as<float>(), batch.images.size()};
  kept.labels = {labels.as<int32_t>(), batch.labels.size()};
  return kept;
}

}  // namespace carole::train
