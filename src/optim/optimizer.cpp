#include "src/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::optim {
namespace {

// Weights, gradients and two slots of a block fit into the first caches.
constexpr int64_t kBlock = 4096;

template <typename T>
void Fill(const Buffer& buffer, double value) {
  T* data = reinterpret_cast<T*>(buffer.data());
  std::fill_n(data, buffer.size() / sizeof(T), static_cast<T>(value));
}

// TensorFlow holds all these numbers as float32, whatever the type of the weights. So a checkpoint,
// which holds floats, loses nothing either.
double Rounded(double value) { return static_cast<float>(value); }

Coefficients Rounded(const Coefficients& c) {
  return {.learning_rate = c.learning_rate,
          .momentum = Rounded(c.momentum),
          .decay = Rounded(c.decay),
          .decay2 = Rounded(c.decay2),
          .epsilon = Rounded(c.epsilon),
          .power = Rounded(c.power),
          .l1 = Rounded(c.l1),
          .l2 = Rounded(c.l2)};
}

constexpr const char* kPowerNames[] = {"beta1_power", "beta2_power"};

}  // namespace

Optimizer::Optimizer(const OptimizerEntry& entry, const OptimizerOptions& options, Arenas arenas,
                     int threads)
    : plan_(entry.plan(options)),
      weight_decay_(options.weight_decay),
      clip_norm_(options.clip_gradient_norm),
      arenas_(std::move(arenas)),
      threads_(threads),
      now_(Rounded(plan_.coefficients)) {
  const bool f64 = arenas_.dtype == DType::kF64;
  CAROLE_CHECK(f64 || arenas_.dtype == DType::kF32, "weights of {}", Name(arenas_.dtype));
  CAROLE_CHECK(plan_.slots.size() <= kMaxSlots, "{} slots", plan_.slots.size());
  if (!(clip_norm_ >= 0)) {
    throw UsageError(fmt::format(
        "[optim] --clip_gradient_norm: makes no sense: got {}, want 0 or more", clip_norm_));
  }
  if (plan_.trust == 0) MergeRegularized();
  for (const Slot& slot : plan_.slots) {
    memory_.emplace_back(slot_bytes());
    if (slot.initial != 0) {
      f64 ? Fill<double>(memory_.back(), slot.initial) : Fill<float>(memory_.back(), slot.initial);
    }
  }
  if (plan_.has_powers) {
    SetScalar(kPowerNames[0], now_.decay);
    SetScalar(kPowerNames[1], now_.decay2);
  }
}

// Runs of neighbours, so that there is less to cut.
void Optimizer::MergeRegularized() {
  std::vector<Segment> merged;
  for (const Segment& s : arenas_.regularized) {
    if (!merged.empty() && merged.back().end == s.begin) {
      merged.back().end = s.end;
    } else {
      merged.push_back(s);
    }
  }
  arenas_.regularized = std::move(merged);
}

size_t Optimizer::slot_bytes() const {
  return static_cast<size_t>(arenas_.count) * SizeOf(arenas_.dtype);
}

void Optimizer::BeginStep(double learning_rate) {
  now_.learning_rate = learning_rate;
  now_.decay_power = powers_[0];
  now_.decay2_power = powers_[1];
  squares_ = gradient_squares_ = 0;
  inspected_ = updated_ = 0;
  rates_.clear();
}

// In blocks whose sums are added in order, so that the number of threads changes nothing.
template <typename T>
double Optimizer::SquaresOf(const std::byte* arena, int64_t begin, int64_t end) {
  const T* values = reinterpret_cast<const T*>(arena);
  sums_.resize(static_cast<size_t>((end - begin + kBlock - 1) / kBlock));
  const int64_t num_blocks = static_cast<int64_t>(sums_.size());
#pragma omp parallel for num_threads(threads_) if (num_blocks > 16) schedule(static)
  for (int64_t i = 0; i < num_blocks; ++i) {
    const int64_t first = begin + i * kBlock;
    sums_[i] = SumOfSquares(values + first, std::min(kBlock, end - first));
  }
  double sum = 0;
  for (double block : sums_) sum += block;
  return sum;
}

void Optimizer::Inspect(int64_t begin, int64_t end) {
  CAROLE_CHECK(0 <= begin && begin <= end && end <= arenas_.count, "range [{}, {}) of {} gradients",
               begin, end, arenas_.count);
  gradient_squares_ += arenas_.dtype == DType::kF64
                           ? SquaresOf<double>(arenas_.gradients, begin, end)
                           : SquaresOf<float>(arenas_.gradients, begin, end);
  inspected_ += end - begin;
}

double Optimizer::gradient_norm() const { return std::sqrt(gradient_squares_); }

// tf.clip_by_global_norm.
double Optimizer::GradientScale() const {
  if (clip_norm_ == 0) return 1;
  CAROLE_CHECK_EQ(inspected_, arenas_.count, "gradients inspected in this step");
  return clip_norm_ / std::max(clip_norm_, gradient_norm());
}

// Variables without L2 (biases, batch norm) keep the step's rate, as those that are all zero do.
void Optimizer::FindRates() {
  const double scale = GradientScale();
  const bool f64 = arenas_.dtype == DType::kF64;
  for (const Segment& s : arenas_.regularized) {
    auto norm = [&](const std::byte* arena) {
      return std::sqrt(f64 ? SquaresOf<double>(arena, s.begin, s.end)
                           : SquaresOf<float>(arena, s.begin, s.end));
    };
    const double weight = norm(arenas_.weights), gradient = scale * norm(arenas_.gradients);
    const double rate = plan_.trust * weight / (gradient + weight_decay_ * weight + now_.epsilon);
    rates_.push_back(now_.learning_rate * (weight > 0 && gradient > 0 ? rate : 1));
  }
}

void Optimizer::AddBlocks(Segment range, bool regularized, double rate) {
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    blocks_.push_back({.range = {begin, std::min(begin + kBlock, range.end)},
                       .regularized = regularized && weight_decay_ != 0,
                       .rate = rate});
  }
}

void Optimizer::CutIntoBlocks(Segment range) {
  blocks_.clear();
  const auto& segments = arenas_.regularized;
  auto segment = std::partition_point(segments.begin(), segments.end(),
                                      [&](const Segment& s) { return s.end <= range.begin; });
  for (; segment != segments.end() && segment->begin < range.end; ++segment) {
    AddBlocks({range.begin, segment->begin}, false, now_.learning_rate);
    range.begin = std::max(range.begin, segment->begin);
    const int64_t end = std::min(segment->end, range.end);
    AddBlocks({range.begin, end}, true,
              rates_.empty() ? now_.learning_rate : rates_[segment - segments.begin()]);
    range.begin = end;
  }
  AddBlocks(range, false, now_.learning_rate);
}

template <typename T>
void Optimizer::UpdateBlocks() {
  const UpdateFunction<T> update = FindUpdate<T>(plan_.rule);
  const int64_t num_blocks = static_cast<int64_t>(blocks_.size());
  const double scale = GradientScale();
#pragma omp parallel for num_threads(threads_) if (num_blocks > 4) schedule(static)
  for (int64_t i = 0; i < num_blocks; ++i) {
    Block& block = blocks_[i];
    const int64_t begin = block.range.begin;
    Elements<T> elements{.weights = reinterpret_cast<T*>(arenas_.weights) + begin,
                         .gradients = reinterpret_cast<const T*>(arenas_.gradients) + begin,
                         .count = block.range.end - begin,
                         .gradient_scale = scale,
                         .weight_decay = block.regularized ? weight_decay_ : 0};
    for (size_t s = 0; s < memory_.size(); ++s)
      elements.slots[s] = reinterpret_cast<T*>(memory_[s].data()) + begin;
    Coefficients coefficients = now_;
    coefficients.learning_rate = block.rate;
    block.squares = update(elements, coefficients);
  }
}

void Optimizer::Update(int64_t begin, int64_t end) {
  CAROLE_CHECK(0 <= begin && begin <= end && end <= arenas_.count, "range [{}, {}) of {} weights",
               begin, end, arenas_.count);
  if (plan_.trust != 0 && rates_.empty()) FindRates();
  CutIntoBlocks({begin, end});
  arenas_.dtype == DType::kF64 ? UpdateBlocks<double>() : UpdateBlocks<float>();
  for (const Block& block : blocks_) squares_ += block.squares;
  updated_ += end - begin;
}

double Optimizer::EndStep() {
  CAROLE_CHECK_EQ(updated_, arenas_.count, "weights updated in this step");
  if (plan_.has_powers) {
    SetScalar(kPowerNames[0], powers_[0] * now_.decay);
    SetScalar(kPowerNames[1], powers_[1] * now_.decay2);
  }
  return 0.5 * weight_decay_ * squares_;
}

std::vector<OptimizerScalar> Optimizer::scalars() const {
  if (!plan_.has_powers) return {};
  return {{kPowerNames[0], powers_[0]}, {kPowerNames[1], powers_[1]}};
}

void Optimizer::SetScalar(const std::string& name, double value) {
  const bool second = name == kPowerNames[1];
  if (!plan_.has_powers || (!second && name != kPowerNames[0]))
    throw DataError(fmt::format("[optim] {}: the optimizer keeps no such number", name));
  powers_[second] = Rounded(value);
}

}  // namespace carole::optim
