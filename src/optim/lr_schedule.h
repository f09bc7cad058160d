// The learning rate of a step, as TF-Slim's trainer computes it: in float32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carole::optim {

inline constexpr char kDecayTypes[] = "fixed, exponential, polynomial, cosine or piecewise";

struct LearningRateOptions {
  std::string type = "exponential";  // one of kDecayTypes
  double learning_rate = 0.01;
  double end_learning_rate = 0.0001;  // polynomial and cosine only
  double decay_factor = 0.94;         // exponential only
  double num_epochs_per_decay = 2.0;
  std::vector<double> boundaries = {30, 60, 80, 90};            // piecewise only, in epochs
  std::vector<double> factors = {1, 0.1, 0.01, 0.001, 0.0001};  // one more than boundaries
  double warmup_epochs = 0;
  int64_t scale_batch = 0;  // not 0: the rate is meant for this global batch, and grows with it
  int64_t num_samples = 0;  // of the split; 0 is allowed for a fixed rate without warm-up
  int64_t batch_size = 32;  // per rank, as TF-Slim's is per clone
  int64_t replicas_to_aggregate = 1;  // whose batches TF-Slim counts as a step
  int64_t ranks = 1;                  // whose batches make one
};

class LearningRate {
 public:
  // Throws UsageError that names the flag.
  explicit LearningRate(const LearningRateOptions& options);

  // Of the step that follows after `step` steps have been done.
  //   exponential: rate * factor^floor(step / decay_steps)
  //   polynomial:  (rate - end) * (1 - min(step, decay_steps) / decay_steps) + end
  //   cosine:      (rate - end) * (1 + cos(pi * min(step, decay_steps) / decay_steps)) / 2 + end
  //   piecewise:   rate * factors[k], k: how many of the boundaries,
  //                int(steps_per_epoch * boundary), are less than step
  //   warm-up:     min(that, rate * step / (steps_per_epoch * warmup_epochs))
  float At(int64_t step) const;

  // "0.01, times 0.94 every 80 steps (decay_steps)".
  std::string Describe(const LearningRateOptions& options) const;

  // After linear scaling with the batch (Goyal et al. 2017).
  double base() const { return rate_; }
  // int(steps_per_epoch * num_epochs_per_decay); 0 where nothing decays by it.
  int64_t decay_steps() const { return decay_steps_; }

 private:
  enum class Kind { kFixed, kExponential, kPolynomial, kCosine, kPiecewise };
  static Kind KindOf(std::string_view type);
  void PlanPieces(const LearningRateOptions& o, double steps_per_epoch);

  Kind kind_;
  float rate_, end_rate_, factor_;
  int64_t decay_steps_ = 0;
  std::vector<int64_t> boundary_steps_;
  std::vector<float> piece_rates_;
  double warmup_steps_ = 0;
};

}  // namespace carole::optim
