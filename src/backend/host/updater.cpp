// How the host updates the weights.
//
// Data. All weights of a net are in one flat arena, in the order in which their gradients become
// final. The gradients are in a second arena, and each optimizer slot is in another one. Element i
// of each belongs to the same weight. An update is therefore a loop over i; it does not know
// variables. Only two things differ between variables: weight decay is on or off, and optimizers
// with a trust ratio have one learning rate for each variable. UpdateJob::segments lists the
// variables for which one of them matters.
//
// Blocks. CutIntoBlocks() (src/backend/update.cpp) cuts the arena into blocks of at most 4096
// elements. No block crosses the border of a segment. Each thread takes whole blocks. Example: the
// variable w has 5000 elements and is regularized, b has 10 and is not.
//
//   index      0                4096       5000      5010
//   variables  |<------------ w ----------->|<-- b -->|
//   segments   |<-------- segment 0 ------->|
//   blocks     |     block 0     |  block 1  | block 2 |     block 2 has no weight decay
//
// Phases of a step:
//   1. BeginStep() stores learning rate and coefficients, and clears the sums.
//   2. Inspect() is called for each bucket of gradients when its all-reduce has ended, while other
//      buckets are in flight. It adds the squares of the gradients to the global norm. A sum of
//      squares is finite exactly if all values are, so the same pass finds NaN and infinity.
//      InspectLoss() checks the loss.
//   3. Update() returns at once if something was not finite. So a step is applied to all weights or
//      to none.
//   4. It computes the factor for all gradients (loss scale, number of samples, clipping), and with
//      trust ratios the learning rate of each segment. If these depend on the norm of the update, a
//      pass over all blocks updates the slots and sums the squares of Rule::Direction().
//   5. For each block, it sums the squares of the weights, for the regularization loss in the log.
//      Then it applies the rule to the gradients g' = factor * g + weight_decay * w. A block fits
//      into the L1 and L2 caches, so these two loops cost one pass over memory. Rules that decay
//      the weights themselves get g' = factor * g; their decay is not part of the loss.
//
// Example of 4 and 5: w = {1, 1, 1, 1}, g = {0, 3, 0, 4}, the first two are regularized;
// SGD with learning rate 0.1, weight decay 0.1, clipping to norm 2.5.
//   The norm is 5, so factor = 2.5 / 5 = 0.5.
//   w[1] = 1 - 0.1 * (0.5 * 3 + 0.1 * 1) = 0.84.   w[3] = 1 - 0.1 * (0.5 * 4) = 0.8.
//
// Reproducibility. The number of threads changes no bit: blocks do not depend on it, and their sums
// are added in the order of the blocks. The CPU changes no bit: vector_math_simd.cpp adds in a
// fixed number of lanes, whatever the vector width. It is compiled with -ffp-contract=off, so that
// no CPU fuses a multiplication with an addition. Only the ranges given to Inspect() can change the
// last bits of the norm.
//
// Padding has weight 0 and gradient 0. Every rule keeps it 0, so it needs no special case.
#include "src/backend/host/updater.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/backend/host/vector_math.h"
#include "src/backend/optimizers/optimizers.h"
#include "src/backend/update_rules.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"

namespace carole::host {
namespace {

// What the updater needs to know of a rule, in addition to its vector code.
struct RuleTraits {
  bool decays_weights = false;
  TrustNorm trust_norm = TrustNorm::kNone;
  double (*trust_ratio)(const OptimizerOptions& options, double weight_decay, double weight_norm,
                        double norm) = nullptr;
};

RuleTraits TraitsOf(int rule) {
  return VisitRule<double, update_rules::Build>(rule, []<typename Optimizer, typename Rule>() {
    return RuleTraits{.decays_weights = Optimizer::kDecaysWeights,
                      .trust_norm = Optimizer::kTrustNorm,
                      .trust_ratio = Optimizer::template TrustRatio<OptimizerOptions>};
  });
}

template <typename T>
class HostUpdater : public Updater {
 public:
  HostUpdater(const UpdateJob& job, int threads)
      : job_(job),
        options_(*job.options),
        threads_(threads),
        traits_(TraitsOf(job.rule)),
        update_(FindUpdate<T>(job.rule)),
        direction_(FindDirection<T>(job.rule)),
        blocks_(CutIntoBlocks(job)),
        block_squares_(blocks_.size()) {
    CAROLE_CHECK(job.copies.empty(), "{} 16-bit copies of weights on the host", job.copies.size());
  }

  void BeginStep(const UpdateCoefficients& coefficients, bool continues) override {
    coefficients_ = coefficients;
    sums_ = {.is_finite = !continues || sums_.is_finite};
  }

  void Inspect(Segment range) override {
    sums_.gradient_squares += SquaresOf(job_.gradients, range);
    if (!std::isfinite(sums_.gradient_squares)) sums_.is_finite = false;
  }

  void InspectLoss(const Tensor& loss) override {
    if (!std::isfinite(*loss.as<T>())) sums_.is_finite = false;
  }

  void Update() override {
    if (!sums_.is_finite) return;
    const double scale = coefficients_.gradient_scale;
    gradient_scale_ =
        scale * update_rules::GradientScale(job_.clip_norm, scale * scale * sums_.gradient_squares);
    ComputeLearningRates();
    const auto num_blocks = static_cast<int64_t>(blocks_.size());
#pragma omp parallel for num_threads(threads_) if (num_blocks > 4) schedule(static)
    for (int64_t i = 0; i < num_blocks; ++i) block_squares_[i] = Run(update_, blocks_[i]);
    for (double block : block_squares_) sums_.weight_squares += block;
  }

  const UpdateSums* sums() const override { return &sums_; }

 private:
  // Returns the sum of squares of a range of an arena. Threads sum pieces of it. The sums of the
  // pieces are added in order, so that the number of threads does not change the result.
  double SquaresOf(const std::byte* arena, Segment range) {
    const T* values = reinterpret_cast<const T*>(arena);
    constexpr int64_t kBlock = UpdateBlock::kElements;
    partial_sums_.resize(static_cast<size_t>(DivideUp(range.end - range.begin, kBlock)));
    const auto num_parts = static_cast<int64_t>(partial_sums_.size());
#pragma omp parallel for num_threads(threads_) if (num_parts > 16) schedule(static)
    for (int64_t i = 0; i < num_parts; ++i) {
      const int64_t first = range.begin + i * kBlock;
      partial_sums_[i] = SumOfSquares(values + first, std::min(kBlock, range.end - first));
    }
    double sum = 0;
    for (double part : partial_sums_) sum += part;
    return sum;
  }

  // Runs Rule::Direction() on all blocks. Returns the norm of its results for each segment.
  std::vector<double> DirectionNorms() {
    const auto num_blocks = static_cast<int64_t>(blocks_.size());
#pragma omp parallel for num_threads(threads_) if (num_blocks > 4) schedule(static)
    for (int64_t i = 0; i < num_blocks; ++i) block_squares_[i] = Run(direction_, blocks_[i]);
    std::vector<double> norms(job_.segments.size());
    for (size_t i = 0; i < blocks_.size(); ++i)
      if (blocks_[i].segment >= 0) norms[blocks_[i].segment] += block_squares_[i];
    for (double& norm : norms) norm = std::sqrt(norm);
    return norms;
  }

  // Computes the learning rate of each segment: that of the step times its trust ratio. Weights
  // outside of segments always have the rate of the step.
  void ComputeLearningRates() {
    rates_.assign(job_.segments.size(), coefficients_.learning_rate);
    if (traits_.trust_norm == TrustNorm::kNone) return;
    std::vector<double> norms;
    if (traits_.trust_norm == TrustNorm::kUpdate) norms = DirectionNorms();
    for (size_t s = 0; s < rates_.size(); ++s) {
      const VariableSegment& segment = job_.segments[s];
      const double weight_norm = std::sqrt(SquaresOf(job_.weights, segment));
      const double norm = traits_.trust_norm == TrustNorm::kUpdate
                              ? norms[s]
                              : gradient_scale_ * std::sqrt(SquaresOf(job_.gradients, segment));
      rates_[s] *= traits_.trust_ratio(options_, segment.decays ? options_.weight_decay : 0,
                                       weight_norm, norm);
    }
  }

  // Applies the function to a block and returns its result.
  double Run(UpdateFunction<T> function, const UpdateBlock& block) const {
    const int64_t begin = block.range.begin;
    const double weight_decay = block.decays ? options_.weight_decay : 0;
    ArenaRange<T> elements{.weights = reinterpret_cast<T*>(job_.weights) + begin,
                           .gradients = reinterpret_cast<const T*>(job_.gradients) + begin,
                           .count = block.range.end - begin,
                           .gradient_scale = gradient_scale_,
                           .weight_decay = traits_.decays_weights ? 0 : weight_decay};
    for (int s = 0; s < kMaxSlots && job_.slots[s] != nullptr; ++s)
      elements.slots[s] = reinterpret_cast<T*>(job_.slots[s]) + begin;
    UpdateCoefficients coefficients = coefficients_;
    coefficients.weight_decay = weight_decay;
    if (block.segment >= 0) coefficients.learning_rate = rates_[block.segment];
    return function(elements, coefficients, options_);
  }

  const UpdateJob job_;
  const OptimizerOptions options_;
  const int threads_;
  const RuleTraits traits_;
  const UpdateFunction<T> update_, direction_;
  const std::vector<UpdateBlock> blocks_;
  std::vector<double> block_squares_;  // for each block
  std::vector<double> partial_sums_;   // of SquaresOf(); a member, so that it is allocated once
  std::vector<double> rates_;          // learning rate of each segment
  UpdateCoefficients coefficients_;    // of the current step
  double gradient_scale_ = 1;          // factor for the gradients of the current step
  UpdateSums sums_;
};

}  // namespace

std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job, int threads) {
  CAROLE_CHECK(job.dtype == DType::kF64 || job.dtype == DType::kF32, "weights of {}",
               Name(job.dtype));
  if (job.dtype == DType::kF64) return std::make_unique<HostUpdater<double>>(job, threads);
  return std::make_unique<HostUpdater<float>>(job, threads);
}

}  // namespace carole::host
