#include "io/pipeline/synthetic_batches.h"

#include <vector>

#include "src/core/check.h"
#include "src/core/rng.h"

namespace carole::io {
namespace {

class SyntheticBatches : public BatchSource {
 public:
  explicit SyntheticBatches(const SyntheticOptions& options)
      : num_samples_(options.local_batch * options.size),
        labels_(static_cast<size_t>(options.local_batch)) {
    CAROLE_CHECK(options.local_batch > 0 && options.num_classes > 0,
                 "synthetic batches: got a local batch of {} and {} classes, want at least 1",
                 options.local_batch, options.num_classes);
    Rng rng(options.seed, RngPurpose::kData, 0, static_cast<uint64_t>(options.rank));
    const auto values = static_cast<size_t>(options.local_batch) * options.height * options.width *
                        options.channels;
    images_.resize(options.dtype == DType::kU8 ? 0 : values);
    pixels_.resize(options.dtype == DType::kU8 ? values : 0);
    for (float& value : images_) value = 2.0f * rng.NextFloat() - 1.0f;
    for (uint8_t& value : pixels_) value = static_cast<uint8_t>(rng.NextBelow(256));
    for (int32_t& label : labels_) label = static_cast<int32_t>(rng.NextBelow(options.num_classes));
    batch_ = {.images = images_,
              .pixels = pixels_,
              .labels = labels_,
              .valid = options.local_batch,
              .global_valid = num_samples_,
              .first_sample = options.rank * options.local_batch,
              .epoch = -1};
  }

  const Batch* Next() override {
    batch_.epoch = batch_.next_epoch++;
    return &batch_;
  }

  int64_t num_samples() const override { return num_samples_; }

 private:
  int64_t num_samples_;
  std::vector<float> images_;
  std::vector<uint8_t> pixels_;
  std::vector<int32_t> labels_;
  Batch batch_;
};

}  // namespace

std::unique_ptr<BatchSource> MakeSyntheticBatches(const SyntheticOptions& options) {
  return std::make_unique<SyntheticBatches>(options);
}

}  // namespace carole::io
