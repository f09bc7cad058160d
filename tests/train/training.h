// Small nets and data for tests of training.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nets/nets.h"
#include "src/backend/backend.h"
#include "src/ops/ops.h"
#include "src/train/state/state.h"
#include "src/train/step/train_step.h"
#include "tests/golden/formula.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {

inline constexpr int64_t kSmallImage = 8;

// A net with convolution, [batch norm], ReLU and linear layer: (N,1,8,8) -> 10 classes, about 2000
// weights.
struct SmallNet {
  explicit SmallNet(int64_t batch, bool batch_norm = false, DType dtype = DType::kF32,
                    bool training = true)
      : graph(std::make_unique<Graph>(dtype)) {
    Graph& g = *graph;
    const Initializer normal = Initializer::TruncatedNormal(0.1);
    auto variable = [&](const char* name, Shape tf, Shape ours, Initializer init, bool trainable,
                        bool l2) {
      return g.AddVariable({.name = name,
                            .tf_shape = tf,
                            .shape = ours,
                            .initializer = init,
                            .trainable = trainable,
                            .l2_regularized = l2});
    };
    auto vector = [&](const char* name, int64_t size, double value, bool trainable = true) {
      return variable(name, {size}, {size}, Initializer::Constant(value), trainable, false);
    };
    const ValueId images = g.AddInput("images", {batch, 1, kSmallImage, kSmallImage}, dtype);
    const ValueId w1 =
        variable("net/conv/weights", {3, 3, 1, 12}, {12, 1, 3, 3}, normal, true, true);
    ValueId x =
        ops::Conv2d(g, images, w1, kNone, {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}});
    if (batch_norm) {
      x = ops::BatchNorm(
          g,
          {.x = x,
           .beta = vector("net/conv/BatchNorm/beta", 12, 0),
           .moving_mean = vector("net/conv/BatchNorm/moving_mean", 12, 0, false),
           .moving_variance = vector("net/conv/BatchNorm/moving_variance", 12, 1, false)},
          {.training = training});
    }
    x = ops::Reshape(g, ops::Relu(g, x), {batch, 12 * 4 * 4});
    const ValueId w2 = variable("net/logits/weights", {192, 10}, {10, 192}, normal, true, true);
    logits = ops::Linear(g, x, w2, vector("net/logits/biases", 10, 0));
    g.MarkOutput(logits);
    const ValueId labels = g.AddInput("labels", {batch}, DType::kI32);
    const ValueId weights = g.AddInput("weights", {batch}, dtype);
    g.AddLoss("softmax_cross_entropy_loss",
              ops::SoftmaxCrossEntropy(g, logits, labels, weights, {}));
  }

  std::unique_ptr<Graph> graph;
  ValueId logits;
};

// A source of samples that are computed by formula. They are distributed to ranks as dataset.h
// says, but come in the same order in every epoch.
class FormulaSource : public io::BatchSource {
 public:
  struct Options {
    int64_t pixels = kSmallImage * kSmallImage;  // per image, channels included
    int64_t local_batch = 4;
    int64_t num_samples = 22;
    int rank = 0, size = 1;
    bool endless = true;
    bool whole_bytes = false;   // round values so that each one is (byte - 128) / 128
    DType dtype = DType::kF32;  // kU8: the source returns these bytes instead
    // If set, labels are soft: the class `label` has the probability 1 - mixed, (label + 3) % 10
    // has `mixed`.
    std::optional<float> mixed = {};
    // Batches of bad_rank, counted from 0: in bad_batches, pixel 5 is bad_pixel; in short_batches,
    // one record was skipped.
    std::set<int64_t> bad_batches = {}, short_batches = {};
    int bad_rank = 0;
    float bad_pixel = INFINITY;
  };
  explicit FormulaSource(const Options& options, const train::RunState& start = {})
      : o_(options), epoch_(start.epoch), position_(start.position) {
    const auto values = static_cast<size_t>(o_.local_batch * o_.pixels);
    for (Slot& slot : slots_) {
      slot.images.resize(o_.dtype == DType::kU8 ? 0 : values);
      slot.pixels.resize(o_.dtype == DType::kU8 ? values : 0);
      slot.labels.resize(static_cast<size_t>(o_.local_batch));
      slot.soft_labels.resize(o_.mixed ? static_cast<size_t>(10 * o_.local_batch) : 0);
    }
  }

  const io::Batch* Next() override {
    if (position_ == o_.num_samples) return nullptr;
    std::swap(slots_[0], slots_[1]);
    Slot& slot = slots_[0];
    const int64_t first = position_ + o_.rank * o_.local_batch;
    batch_.global_valid = std::min(o_.size * o_.local_batch, o_.num_samples - position_);
    batch_.valid =
        std::clamp<int64_t>(batch_.global_valid - o_.rank * o_.local_batch, 0, o_.local_batch);
    for (int64_t row = 0; row < o_.local_batch; ++row)
      Fill(row, row < batch_.valid ? first + row : position_, slot);
    if (Contains(o_.bad_batches)) slot.images[5] = o_.bad_pixel;
    if (Contains(o_.short_batches)) --batch_.valid;
    ++number_;
    batch_.images = slot.images;
    batch_.pixels = slot.pixels;
    batch_.labels = slot.labels;
    batch_.soft_labels = slot.soft_labels;
    batch_.first_sample = first;
    batch_.epoch = epoch_;
    position_ += batch_.global_valid;
    if (o_.endless && position_ == o_.num_samples) {
      position_ = 0;
      ++epoch_;
    }
    batch_.next_epoch = epoch_;
    batch_.next_position = position_;
    return &batch_;
  }
  int64_t num_samples() const override { return o_.num_samples; }

 private:
  struct Slot {
    std::vector<float> images;
    std::vector<uint8_t> pixels;
    std::vector<int32_t> labels;
    std::vector<float> soft_labels;
  };

  bool Contains(const std::set<int64_t>& batches) const {
    return o_.rank == o_.bad_rank && batches.contains(number_);
  }

  void Fill(int64_t row, int64_t sample, Slot& slot) const {
    const auto image = golden::FormulaInput("sample/" + std::to_string(sample), o_.pixels);
    for (int64_t i = 0; i < o_.pixels; ++i) {
      const auto byte =
          static_cast<uint8_t>(std::clamp(std::round(128.0 + 128.0 * image[i]), 0.0, 255.0));
      const int64_t at = row * o_.pixels + i;
      if (o_.dtype == DType::kU8) {
        slot.pixels[at] = byte;
      } else {
        slot.images[at] = static_cast<float>(o_.whole_bytes ? (byte - 128) / 128.0 : image[i]);
      }
    }
    const int64_t label = sample * 7 % 10;
    slot.labels[row] = static_cast<int32_t>(label);
    if (!o_.mixed) return;
    std::fill_n(slot.soft_labels.begin() + 10 * row, 10, 0.0f);
    slot.soft_labels[10 * row + label] = 1 - *o_.mixed;
    slot.soft_labels[10 * row + (label + 3) % 10] += *o_.mixed;
  }

  const Options o_;
  int64_t epoch_, position_, number_ = 0;
  std::array<Slot, 2> slots_;  // the previous batch stays valid, too
  io::Batch batch_;
};

struct SmallStepOptions {
  std::unique_ptr<Backend> (*backend)(int threads) = MakeReferenceBackend;
  // Lets the communicator reduce memory of the ranks' devices; empty for the host.
  std::function<void(FullCommunicator& communicator, const Backend& backend)> connect_devices;
  Precision precision = Precision::kFp32;
  int64_t rows = 4;  // per micro-batch
  bool batch_norm = false;
  DType dtype = DType::kF32;
};

// A base class that makes the backend before TrainStep needs it.
struct BackendHolder {
  explicit BackendHolder(const SmallStepOptions& options) : backend(options.backend(1)) {
    backend->SetPrecision(options.precision);
  }
  std::unique_ptr<Backend> backend;
};

// The training step of a small net with initial weights, and the backend that runs it.
class SmallStep : public BackendHolder, public train::TrainStep {
 public:
  SmallStep(FullCommunicator& c, const train::StepOptions& step_options,
            const SmallStepOptions& options = {})
      : BackendHolder(options),
        TrainStep(SmallNet(options.rows, options.batch_norm, options.dtype).graph, *backend, c,
                  Connected(step_options, options, c)) {
    store().Initialize(7);
  }

 private:
  train::StepOptions Connected(train::StepOptions step_options, const SmallStepOptions& options,
                               FullCommunicator& c) const {
    if (options.connect_devices && backend->has_own_memory())
      step_options.connect_devices = [&c, this, connect = options.connect_devices] {
        connect(c, *backend);
      };
    return step_options;
  }
};

// Rescales the weights so that activations and loss stay moderate but gradients overflow.
inline void MakeGradientsLarge(VariableStore& store) {
  for (const auto& [name, factor] :
       {std::pair("net/conv/weights", 1e-36F), {"net/logits/weights", 1e30F}}) {
    const int variable = store.Find(name);
    std::vector<float> values(static_cast<size_t>(store.variables()[variable].tf_shape.size()));
    store.Read(variable, values);
    for (float& v : values) v *= factor;
    store.Write(variable, values);
  }
}

// Returns all weights and statistics, one after the other, in TensorFlow's element order.
inline std::vector<double> AllWeights(const VariableStore& store) {
  std::vector<double> all;
  for (size_t v = 0; v < store.variables().size(); ++v) {
    std::vector<double> one(static_cast<size_t>(store.variables()[v].tf_shape.size()));
    const int variable = static_cast<int>(v);
    store.ReadFrom(store.base_of(variable), variable, std::span<double>(one));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

inline double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : 1e300;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace carole::testing
