// What the tests of the input pipeline share: a small MNIST, copies of batches, and augmentations.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "io/pipeline/pipeline.h"
#include "io/preprocessing/preprocessing.h"
#include "tests/io/damage.h"

namespace carole::io {

inline constexpr int kNumRecords = 23;

// The examples of kNumRecords images. Record i has the label i % 10, and its pixel 0 is i.
inline std::vector<std::string> Examples() {
  std::vector<std::string> examples;
  for (int i = 0; i < kNumRecords; ++i) examples.push_back(GrayExample(i, i % 10));
  return examples;
}

// Writes mnist_train.tfrecord to a temporary folder.
class PipelineTest : public testing::Test {
 protected:
  PipelineTest() { WriteExamples(Examples()); }

  void WriteExamples(const std::vector<std::string>& examples) {
    WriteText(File(), Records(examples));
  }
  std::string File() const { return (folder_ / "mnist_train.tfrecord"); }

  PipelineOptions Options() const {
    PipelineOptions options;
    options.dataset = &FindDataset("mnist");
    options.preprocessing = &FindPreprocessing("lenet");
    options.training = true;
    options.height = options.width = 28;
    options.channels = 1;
    options.num_classes = 10;
    options.seed = 5;
    options.dataset_dir = folder_.path();
    options.split = "train";
    options.local_batch = 4;
    options.shuffle = options.repeat = true;
    options.threads = 2;
    return options;
  }

  TemporaryFolder folder_;
};

// A copy of a batch.
struct BatchCopy {
  std::vector<float> images;
  std::vector<int32_t> labels;
  Batch batch;
};

inline BatchCopy Copy(const Batch& batch) {
  return {{batch.images.begin(), batch.images.end()},
          {batch.labels.begin(), batch.labels.end()},
          batch};
}

// The number of the record in a row.
inline int RecordOf(const Batch& batch, int64_t row) {
  if (batch.images.empty())
    return batch.pixels[row * static_cast<int64_t>(batch.pixels.size() / batch.labels.size())];
  const int64_t values = static_cast<int64_t>(batch.images.size() / batch.labels.size());
  return static_cast<int>(std::lround(batch.images[row * values] * 128 + 128));
}

// Adds a random number to each image.
class Brighten : public Augmentation {
 public:
  Settings settings() override { return {}; }
  bool is_active() const override { return true; }
  void Apply(const ImageTask& image) const override {
    const float more = image.rng.NextFloat();
    for (float& value : image.values) value += more;
  }
};

// Selects cifarnet, which draws random numbers for each image. It accepts gray images too. An
// augmentation draws another one.
inline PipelineOptions WithRandomness(PipelineOptions options) {
  options.preprocessing = &FindPreprocessing("cifarnet");
  options.augmentations.images = {{"brighten", std::make_shared<Brighten>()}};
  return options;
}

// Mixes row i with row B-1-i, in a random proportion.
class Mix : public BatchTransform {
 public:
  Settings settings() override { return {}; }
  bool is_active() const override { return true; }
  void Apply(const BatchTask& batch) const override {
    const float part = batch.rng.NextFloat();
    for (const std::span<float> values : {batch.images, batch.soft_labels}) {
      const auto size = static_cast<int64_t>(values.size()) / batch.rows;
      for (int64_t row = 0; 2 * row < batch.rows; ++row) {
        for (int64_t i = 0; i < size; ++i) {
          float& a = values[row * size + i];
          float& b = values[(batch.rows - 1 - row) * size + i];
          const float old = a;
          a = part * a + (1 - part) * b;
          b = part * b + (1 - part) * old;
        }
      }
    }
  }
};

}  // namespace carole::io
