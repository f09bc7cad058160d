#include "src/optim/optimizer.h"

#include <algorithm>
#include <utility>

#include "src/core/check.h"

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
      arenas_(std::move(arenas)),
      threads_(threads),
      now_(Rounded(plan_.coefficients)) {
  const bool f64 = arenas_.dtype == DType::kF64;
  CAROLE_CHECK(f64 || arenas_.dtype == DType::kF32, "weights of {}", Name(arenas_.dtype));
  CAROLE_CHECK(plan_.slots.size() <= kMaxSlots, "{} slots", plan_.slots.size());
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

size_t Optimizer::slot_bytes() const {
  return static_cast<size_t>(arenas_.count) * SizeOf(arenas_.dtype);
}

void Optimizer::BeginStep(double learning_rate) {
  now_.learning_rate = learning_rate;
  now_.decay_power = powers_[0];
  now_.decay2_power = powers_[1];
  squares_ = 0;
  updated_ = 0;
}

void Optimizer::AddBlocks(Segment range, bool regularized) {
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    blocks_.push_back({.range = {begin, std::min(begin + kBlock, range.end)},
                       .regularized = regularized && weight_decay_ != 0});
  }
}

void Optimizer::CutIntoBlocks(Segment range) {
  blocks_.clear();
  const auto& segments = arenas_.regularized;
  auto segment = std::partition_point(segments.begin(), segments.end(),
                                      [&](const Segment& s) { return s.end <= range.begin; });
  for (; segment != segments.end() && segment->begin < range.end; ++segment) {
    AddBlocks({range.begin, segment->begin}, false);
    range.begin = std::max(range.begin, segment->begin);
    const int64_t end = std::min(segment->end, range.end);
    AddBlocks({range.begin, end}, true);
    range.begin = end;
  }
  AddBlocks(range, false);
}

template <typename T>
void Optimizer::UpdateBlocks() {
  const UpdateFunction<T> update = FindUpdate<T>(plan_.rule);
  const int64_t num_blocks = static_cast<int64_t>(blocks_.size());
#pragma omp parallel for num_threads(threads_) if (num_blocks > 4) schedule(static)
  for (int64_t i = 0; i < num_blocks; ++i) {
    Block& block = blocks_[i];
    const int64_t begin = block.range.begin;
    Elements<T> elements{.weights = reinterpret_cast<T*>(arenas_.weights) + begin,
                         .gradients = reinterpret_cast<const T*>(arenas_.gradients) + begin,
                         .count = block.range.end - begin,
                         .weight_decay = block.regularized ? weight_decay_ : 0};
    for (size_t s = 0; s < memory_.size(); ++s)
      elements.slots[s] = reinterpret_cast<T*>(memory_[s].data()) + begin;
    block.squares = update(elements, now_);
  }
}

void Optimizer::Update(int64_t begin, int64_t end) {
  CAROLE_CHECK(0 <= begin && begin <= end && end <= arenas_.count, "range [{}, {}) of {} weights",
               begin, end, arenas_.count);
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
