#include "src/graph/variable_store.h"

#include <algorithm>
#include <cmath>

#include "src/backend/host_view.h"
#include "src/core/hash.h"
#include "src/core/rng.h"
#include "src/tensor/buffer.h"

namespace carole {
namespace {

// Returns fan_in and fan_out as tf.variance_scaling_initializer defines them: the product of the
// leading dimensions, times the last but one (fan_in) or the last dimension (fan_out).
std::pair<double, double> Fans(const Shape& tf_shape) {
  double leading = 1;
  for (int i = 0; i + 2 < tf_shape.rank(); ++i) leading *= static_cast<double>(tf_shape[i]);
  const int rank = tf_shape.rank();
  const double in = rank >= 2 ? static_cast<double>(tf_shape[rank - 2]) : 1.0;
  const double out = rank >= 1 ? static_cast<double>(tf_shape[rank - 1]) : 1.0;
  return {leading * in, leading * out};
}

double TruncatedNormal(Rng& rng) {
  for (;;) {
    const double z = rng.NextNormal();
    if (std::abs(z) <= 2.0) return z;
  }
}

std::vector<float> InitialValues(const VariableSlice& variable, uint64_t seed) {
  Rng rng(seed, RngPurpose::kInit, Fnv1a64(variable.name));
  const auto [fan_in, fan_out] = Fans(variable.tf_shape);
  std::vector<float> values(variable.tf_shape.size());
  const Initializer& init = variable.initializer;
  for (float& v : values) {
    switch (init.kind) {
      case Initializer::Kind::kConstant:
        v = static_cast<float>(init.value);
        break;
      case Initializer::Kind::kTruncatedNormal:
        v = static_cast<float>(init.value * TruncatedNormal(rng));
        break;
      case Initializer::Kind::kXavierUniform:
        v = static_cast<float>(std::sqrt(6.0 / (fan_in + fan_out)) *
                               (2.0 * rng.NextDouble() - 1.0));
        break;
      case Initializer::Kind::kHe:
        v = static_cast<float>(std::sqrt(1.3 * 2.0 / fan_in) * TruncatedNormal(rng));
        break;
      case Initializer::Kind::kHeOut:
        v = static_cast<float>(std::sqrt(1.3 * 2.0 / fan_out) * TruncatedNormal(rng));
        break;
    }
  }
  return values;
}

}  // namespace

VariableStore::VariableStore(const Backend& backend, DType dtype,
                             std::vector<VariableSlice> variables, std::vector<int> ready_order,
                             const Allocate& allocate_gradients)
    : backend_(backend),
      dtype_(dtype),
      variables_(std::move(variables)),
      ready_order_(std::move(ready_order)) {
  auto place = [&](VariableSlice& p, int64_t& end) {
    p.offset = end;
    p.count = static_cast<int64_t>(AlignUp(ByteSize(p.shape, dtype_, p.layout)) / SizeOf(dtype_));
    end += p.count;
  };
  std::vector<bool> placed(variables_.size(), false);
  auto place_once = [&](int i) {
    CAROLE_CHECK(variables_[i].trainable && !placed[i], "variable {} is placed twice",
                 variables_[i].name);
    placed[i] = true;
    place(variables_[i], trainable_count_);
  };
  for (int i : ready_order_) place_once(i);
  for (size_t i = 0; i < variables_.size(); ++i) {  // trainable ones without gradient come last
    if (variables_[i].trainable && !placed[i]) place_once(static_cast<int>(i));
  }
  for (const bool in_model : {true, false}) {
    for (VariableSlice& p : variables_) {
      if (!p.trainable && p.model_variable == in_model) place(p, statistics_count_);
    }
    if (in_model) model_statistics_count_ = statistics_count_;
  }
  const size_t bytes = weights_bytes();
  weights_ = backend_.Allocate(bytes);
  statistics_ = backend_.Allocate(statistics_bytes());
  if (allocate_gradients) {
    gradients_ = allocate_gradients(bytes);
  } else if (!ready_order_.empty()) {
    own_gradients_ = backend_.Allocate(bytes);
    gradients_ = own_gradients_.get();
  }
}

int VariableStore::Find(std::string_view name) const {
  const auto it = std::find_if(variables_.begin(), variables_.end(),
                               [&](const VariableSlice& p) { return p.name == name; });
  return it == variables_.end() ? -1 : static_cast<int>(it - variables_.begin());
}

Tensor VariableStore::At(std::byte* arena, int variable) const {
  const VariableSlice& p = variables_[variable];
  return {.data = arena + p.offset * static_cast<int64_t>(SizeOf(dtype_)),
          .shape = p.shape,
          .dtype = dtype_,
          .layout = p.layout};
}

Tensor VariableStore::Weight(int variable) const { return At(base_of(variable), variable); }

Tensor VariableStore::Gradient(int variable) const {
  CAROLE_CHECK(variables_[variable].trainable && gradients_ != nullptr, "{} has no gradient",
               variables_[variable].name);
  return At(gradients_, variable);
}

template <typename T>
void VariableStore::ReadFrom(const std::byte* arena, int variable, std::span<T> out) const {
  const VariableSlice& p = variables_[variable];
  CAROLE_CHECK_EQ(static_cast<int64_t>(out.size()), p.shape.size(), "values of {}", p.name);
  const Tensor stored = At(const_cast<std::byte*>(arena), variable);
  const size_t bytes = out.size() * SizeOf(dtype_);
  const DeviceMemory plain = backend_.Allocate(bytes);
  backend_.Reorder(
      stored, {.data = plain.get(), .shape = p.shape, .dtype = dtype_, .layout = p.plain_layout});
  const HostView view(backend_, plain.get(), bytes);
  const auto cast = [&](const auto& from) {
    std::transform(from.begin(), from.end(), out.begin(), [](auto v) { return static_cast<T>(v); });
  };
  dtype_ == DType::kF64 ? cast(view.as<double>()) : cast(view.as<float>());
}

template <typename T>
void VariableStore::WriteTo(std::byte* arena, int variable, std::span<const T> in) const {
  const VariableSlice& p = variables_[variable];
  if (static_cast<int64_t>(in.size()) != p.shape.size()) {
    throw DataError(
        fmt::format("[variables] {}: wrong number of values: got {}, want {} for shape {}", p.name,
                    in.size(), p.shape.size(), p.tf_shape.ToString()));
  }
  const size_t bytes = in.size() * SizeOf(dtype_);
  const DeviceMemory plain = backend_.Allocate(bytes);
  const HostView view(backend_, plain.get(), bytes);
  if (dtype_ == DType::kF64) {
    std::copy(in.begin(), in.end(), view.as<double>().begin());
  } else {
    std::transform(in.begin(), in.end(), view.as<float>().begin(),
                   [](T v) { return static_cast<float>(v); });
  }
  view.Store();
  backend_.Reorder(
      {.data = plain.get(), .shape = p.shape, .dtype = dtype_, .layout = p.plain_layout},
      At(arena, variable));
}

template void VariableStore::ReadFrom(const std::byte*, int, std::span<float>) const;
template void VariableStore::ReadFrom(const std::byte*, int, std::span<double>) const;
template void VariableStore::WriteTo(std::byte*, int, std::span<const float>) const;
template void VariableStore::WriteTo(std::byte*, int, std::span<const double>) const;

void VariableStore::Read(int variable, std::span<float> out) const {
  ReadFrom(base_of(variable), variable, out);
}

void VariableStore::Write(int variable, std::span<const float> in) {
  WriteTo(base_of(variable), variable, in);
}

void VariableStore::Initialize(uint64_t seed) {
  for (size_t i = 0; i < variables_.size(); ++i)
    Write(static_cast<int>(i), InitialValues(variables_[i], seed));
}

}  // namespace carole
