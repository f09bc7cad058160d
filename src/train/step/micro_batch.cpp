#include "src/train/step/micro_batch.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"

namespace carole::train {
namespace {

// Number of threads that copy a batch: those of the backend, but at least four, which are as fast
// as memory. More threads would busy-wait for the next copy and take cores from the threads that
// decode images.
int CopyThreads(const Backend& backend) {
  constexpr int kMinThreads = 4;
  return std::min(omp_get_max_threads(), std::max(kMinThreads, backend.threads()));
}

template <typename To, typename From>
void CopyValues(std::span<const From> from, const Tensor& input, const Executable& executable) {
  CAROLE_CHECK_EQ(static_cast<int64_t>(from.size()), input.size(), "values of a batch");
  To* to = input.as<To>();
  const auto count = static_cast<int64_t>(from.size());
  const int threads = CopyThreads(executable.backend());
#pragma omp parallel for simd schedule(static) if (count > (1 << 18)) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

// Copies the labels of the kind that the graph has: (N) int32, or soft ones (N,K).
void CopyLabels(const io::Batch& batch, const Tensor& labels, const Executable& executable) {
  const bool is_soft = labels.dtype != DType::kI32;
  const size_t count = is_soft ? batch.soft_labels.size() : batch.labels.size();
  CAROLE_CHECK_EQ(static_cast<int64_t>(count), labels.size(), "labels of a batch");
  if (labels.dtype == DType::kF64) {
    CopyValues<double>(batch.soft_labels, labels, executable);
  } else if (is_soft) {
    CopyValues<float>(batch.soft_labels, labels, executable);
  } else {
    CAROLE_CHECK(batch.soft_labels.empty(), "soft labels for a graph that has none");
    std::copy(batch.labels.begin(), batch.labels.end(), labels.as<int32_t>());
  }
}

template <typename T>
void SetWeights(int64_t valid, double row_weight, const Tensor& weights) {
  std::fill_n(weights.as<T>(), weights.size(), T(0));
  std::fill_n(weights.as<T>(), valid, static_cast<T>(row_weight));
}

}  // namespace

io::Batch SliceMicroBatch(const io::Batch& batch, int64_t index, int64_t rows) {
  const auto all_rows = static_cast<int64_t>(batch.labels.size());
  CAROLE_CHECK(rows > 0 && (index + 1) * rows <= all_rows,
               "micro-batch {} of {} rows in a batch of {}", index, rows, all_rows);
  const auto first = static_cast<size_t>(index * rows), count = static_cast<size_t>(rows);
  io::Batch micro_batch = batch;
  const auto rows_of = [&](auto images) {
    const size_t values = images.size() / batch.labels.size();
    return images.subspan(first * values, count * values);
  };
  micro_batch.images = rows_of(batch.images);
  micro_batch.pixels = rows_of(batch.pixels);
  micro_batch.labels = batch.labels.subspan(first, count);
  const size_t classes = batch.soft_labels.size() / batch.labels.size();
  micro_batch.soft_labels = batch.soft_labels.subspan(first * classes, count * classes);
  micro_batch.valid = std::clamp<int64_t>(batch.valid - index * rows, 0, rows);
  micro_batch.first_sample = batch.first_sample + index * rows;
  return micro_batch;
}

int64_t CountMicroBatches(const io::Batch& batch, int64_t max_count) {
  const auto all_rows = static_cast<int64_t>(batch.labels.size());
  const int64_t rows = all_rows / max_count;
  const int64_t most =
      batch.max_valid >= 0 ? batch.max_valid : std::min(batch.global_valid, all_rows);
  return std::max<int64_t>(1, DivideUp(most, rows));
}

void CheckBatch(const io::Batch& batch, int64_t num_classes) {
  CAROLE_CHECK(batch.valid <= static_cast<int64_t>(batch.labels.size()) && batch.global_valid > 0,
               "a batch with {} valid rows of {}, {} over all ranks", batch.valid,
               batch.labels.size(), batch.global_valid);
  for (int32_t label : batch.labels) {
    if (label >= 0 && label < num_classes) continue;
    throw DataError(
        fmt::format("[train] epoch {}: label out of range: got {}, want 0 to {}; check {} "
                    "and the number of classes",
                    batch.epoch, label, num_classes - 1, Option("labels_offset")));
  }
}

void CopyImages(std::span<const float> from, const Executable& executable) {
  const Tensor images = executable.Input("images");
  if (images.dtype == DType::kF64) {
    CopyValues<double>(from, images, executable);
  } else {
    CopyValues<float>(from, images, executable);
  }
}

void CopyBatch(const io::Batch& batch, double row_weight, const Executable& executable) {
  const Tensor images = executable.Input("images");
  const Tensor weights = executable.Input("weights");
  CopyLabels(batch, executable.Input("labels"), executable);
  if (images.dtype == DType::kU8) {
    CopyValues<uint8_t>(batch.pixels, images, executable);
  } else {
    CopyImages(batch.images, executable);
  }
  if (weights.dtype == DType::kF64) {
    SetWeights<double>(batch.valid, row_weight, weights);
  } else {
    SetWeights<float>(batch.valid, row_weight, weights);
  }
}

}  // namespace carole::train
