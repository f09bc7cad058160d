// The learning rate of a step, as TF-Slim's trainer computes it: in float32.
#pragma once

#include <cstdint>
#include <string>

namespace carole::optim {

struct LearningRateOptions {
  std::string type = "exponential";  // fixed, exponential or polynomial
  double learning_rate = 0.01;
  double end_learning_rate = 0.0001;  // polynomial only
  double decay_factor = 0.94;         // exponential only
  double num_epochs_per_decay = 2.0;
  double warmup_epochs = 0;
  int64_t num_samples = 0;            // of the split; 0 is allowed for a fixed rate without warm-up
  int64_t batch_size = 32;            // per rank, as TF-Slim's is per clone
  int64_t replicas_to_aggregate = 1;  // more than 1 shortens the epoch to that share of steps
};

class LearningRate {
 public:
  // Throws UsageError that names the flag.
  explicit LearningRate(const LearningRateOptions& options);

  // Of the step that follows after `step` steps have been done.
  //   exponential: rate * factor^floor(step / decay_steps)
  //   polynomial:  (rate - end) * (1 - min(step, decay_steps) / decay_steps) + end
  //   warm-up:     min(that, rate * step / (steps_per_epoch * warmup_epochs))
  float At(int64_t step) const;

  // int(steps_per_epoch * num_epochs_per_decay); 0 where the rate is fixed.
  int64_t decay_steps() const { return decay_steps_; }

 private:
  enum class Kind { kFixed, kExponential, kPolynomial } kind_;
  float rate_, end_rate_, factor_;
  int64_t decay_steps_ = 0;
  double warmup_steps_ = 0;
};

}  // namespace carole::optim
