#include "src/optim/host_updater.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/backend/update_rules.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"
#include "src/optim/update.h"

namespace carole::optim {
namespace {

template <typename T>
class HostUpdater : public Updater {
 public:
  HostUpdater(const UpdateJob& job, int threads)
      : job_(job),
        threads_(threads),
        update_(FindUpdate<T>(job.rule)),
        blocks_(CutIntoBlocks(job)),
        squares_(blocks_.size()) {
    CAROLE_CHECK(job.copies.empty(), "{} copies of a host's weights", job.copies.size());
  }

  void BeginStep(const UpdateCoefficients& coefficients, bool continues) override {
    now_ = coefficients;
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
    const double scale = now_.gradient_scale;
    scale_ =
        scale * update_rules::GradientScale(job_.clip_norm, scale * scale * sums_.gradient_squares);
    FindRates();
    const auto num_blocks = static_cast<int64_t>(blocks_.size());
#pragma omp parallel for num_threads(threads_) if (num_blocks > 4) schedule(static)
    for (int64_t i = 0; i < num_blocks; ++i) squares_[i] = UpdateOne(blocks_[i]);
    for (double block : squares_) sums_.weight_squares += block;
  }

  const UpdateSums* sums() const override { return &sums_; }

 private:
  // In blocks whose sums are added in order, so that the number of threads changes nothing.
  double SquaresOf(const std::byte* arena, Segment range) {
    const T* values = reinterpret_cast<const T*>(arena);
    constexpr int64_t kBlock = UpdateBlock::kElements;
    parts_.resize(static_cast<size_t>(DivideUp(range.end - range.begin, kBlock)));
    const auto num_parts = static_cast<int64_t>(parts_.size());
#pragma omp parallel for num_threads(threads_) if (num_parts > 16) schedule(static)
    for (int64_t i = 0; i < num_parts; ++i) {
      const int64_t first = range.begin + i * kBlock;
      parts_[i] = SumOfSquares(values + first, std::min(kBlock, range.end - first));
    }
    double sum = 0;
    for (double part : parts_) sum += part;
    return sum;
  }

  // Variables without L2 (biases, batch norm) keep the step's rate.
  void FindRates() {
    rates_.assign(job_.regularized.size(), now_.learning_rate);
    for (size_t s = 0; job_.trust != 0 && s < rates_.size(); ++s) {
      const Segment& range = job_.regularized[s];
      rates_[s] *= update_rules::Trust(job_.trust, job_.weight_decay, now_.epsilon,
                                       std::sqrt(SquaresOf(job_.weights, range)),
                                       scale_ * std::sqrt(SquaresOf(job_.gradients, range)));
    }
  }

  double UpdateOne(const UpdateBlock& block) const {
    const int64_t begin = block.range.begin;
    Elements<T> elements{.weights = reinterpret_cast<T*>(job_.weights) + begin,
                         .gradients = reinterpret_cast<const T*>(job_.gradients) + begin,
                         .count = block.range.end - begin,
                         .gradient_scale = scale_,
                         .weight_decay = block.segment >= 0 ? job_.weight_decay : 0};
    for (int s = 0; s < kMaxSlots && job_.slots[s] != nullptr; ++s)
      elements.slots[s] = reinterpret_cast<T*>(job_.slots[s]) + begin;
    UpdateCoefficients coefficients = now_;
    if (block.segment >= 0) coefficients.learning_rate = rates_[block.segment];
    return update_(elements, coefficients);
  }

  const UpdateJob job_;
  const int threads_;
  const UpdateFunction<T> update_;
  const std::vector<UpdateBlock> blocks_;
  std::vector<double> squares_;  // of the blocks' weights
  std::vector<double> parts_;    // of a sum; kept to allocate only once
  std::vector<double> rates_;    // of the regularized segments
  UpdateCoefficients now_;
  double scale_ = 1;  // of the step's gradient
  UpdateSums sums_;
};

}  // namespace

std::unique_ptr<Updater> MakeHostUpdater(const UpdateJob& job, int threads) {
  CAROLE_CHECK(job.dtype == DType::kF64 || job.dtype == DType::kF32, "weights of {}",
               Name(job.dtype));
  if (job.dtype == DType::kF64) return std::make_unique<HostUpdater<double>>(job, threads);
  return std::make_unique<HostUpdater<float>>(job, threads);
}

}  // namespace carole::optim
