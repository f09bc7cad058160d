// Learning rate schedules. They give the same rates as TF-Slim's trainer, which computes in
// float32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carole::optim {

// The names of the schedules, for messages and help.
inline constexpr char kDecayTypes[] = "fixed, exponential, polynomial, cosine or piecewise";

struct LearningRateOptions {
  std::string type = "exponential";  // one of kDecayTypes
  double learning_rate = 0.01;
  double end_learning_rate = 0.0001;                  // of polynomial and cosine
  double decay_factor = 0.94;                         // of exponential
  double num_epochs_per_decay = 2.0;                  // 0 for polynomial and cosine: run_steps hold
  int64_t run_steps = 0;                              // length of the run; 0: no end
  std::vector<double> boundaries = {30, 60, 80, 90};  // of piecewise, in epochs
  std::vector<double> factors = {1, 0.1, 0.01, 0.001, 0.0001};  // of piecewise, one more
  double warmup_epochs = 0;
  // The global batch size for which learning_rate is meant. If not 0, the rate grows in proportion
  // to the global batch (Goyal et al. 2017).
  int64_t base_batch = 0;
  int64_t num_samples = 0;            // of the split; may be 0 for a fixed rate without warm-up
  int64_t batch_size = 32;            // of a rank, as TF-Slim's is that of a clone
  int64_t replicas_to_aggregate = 1;  // how many such batches TF-Slim counts as a step
  int64_t ranks = 1;                  // how many such batches make a global batch
};

class LearningRate {
 public:
  // Throws UsageError, which names the flag, if an option is out of range.
  explicit LearningRate(const LearningRateOptions& options);

  // Returns the learning rate of the step that comes after `step` steps:
  //   exponential: rate * factor^floor(step / decay_steps)
  //   polynomial:  (rate - end) * (1 - min(step, decay_steps) / decay_steps) + end
  //   cosine:      (rate - end) * (1 + cos(pi * min(step, decay_steps) / decay_steps)) / 2 + end
  //   piecewise:   rate * factors[k]; k is the number of boundaries b for which
  //                int(steps_per_epoch * b) is less than step
  // and during warm-up the minimum of this and rate * step / (steps_per_epoch * warmup_epochs).
  float At(int64_t step) const;

  // Returns a description such as "0.01, times 0.94 every 80 steps (decay_steps)".
  std::string Describe(const LearningRateOptions& options) const;

  // The rate before decay and warm-up, scaled to the global batch.
  double base() const { return rate_; }
  // int(steps_per_epoch * num_epochs_per_decay), but at least 1, or else run_steps; 0 for fixed and
  // piecewise.
  int64_t decay_steps() const { return decay_steps_; }
  // Whether num_epochs_per_decay is less than a step. TF-Slim would divide by 0; here the rate
  // changes in each step.
  bool decays_in_each_step() const { return decays_in_each_step_; }

 private:
  enum class Kind { kFixed, kExponential, kPolynomial, kCosine, kPiecewise };
  static Kind KindOf(std::string_view type);
  int64_t DecaySteps(const LearningRateOptions& o, double steps_per_epoch);
  // Computes the members of the piecewise schedule.
  void PlanPieces(const LearningRateOptions& o, double steps_per_epoch);

  Kind kind_;
  float rate_, end_rate_, factor_;
  int64_t decay_steps_ = 0;
  bool decays_in_each_step_ = false;
  std::vector<int64_t> boundary_steps_;  // of piecewise
  std::vector<float> piece_rates_;       // of piecewise, one more
  double warmup_steps_ = 0;
};

}  // namespace carole::optim
