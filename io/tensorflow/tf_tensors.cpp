#include "io/tensorflow/tf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "io/checkpoint/checkpoint.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"

namespace carole::io {
namespace {

// The name of the step in name-based checkpoints, and in object-based ones of an Estimator and of
// tf.train.Checkpoint(global_step=…).
constexpr const char* kGlobalSteps[] = {"global_step",
                                        "estimator_global_step/.ATTRIBUTES/VARIABLE_VALUE",
                                        "global_step/.ATTRIBUTES/VARIABLE_VALUE"};
// The only other variable of TF-Slim that is an integer: the steps of quantized training.
constexpr const char* kQuantizationStep = "fake_quantization_step";
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 16;

bool IsFloat(TfType type) {
  return type == TfType::kFloat || type == TfType::kDouble || type == TfType::kHalf ||
         type == TfType::kBfloat16;
}

// "3,3,64"
std::string ToText(std::span<const int64_t> dims) {
  std::string text;
  for (int64_t size : dims) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

// "global_step int64 []"
std::string Describe(const std::string& name, TfType type, std::span<const int64_t> dims) {
  return fmt::format("{} {} [{}]", name, NameOf(type), ToText(dims));
}

// The number of elements of a shape; nullopt if a dimension is negative or the number too large.
std::optional<int64_t> Count(std::span<const int64_t> dims) {
  int64_t left = kMaxElements, count = 1;
  for (int64_t size : dims) {
    if (size < 0 || size > left) return std::nullopt;
    if (size > 0) left /= size;
    count *= size;
  }
  return count;
}

// The shape of a slice. An empty slice is the whole tensor.
Shape SizesOf(const Shape& whole, const TfSlice& slice) {
  Shape sizes = whole;
  for (size_t i = 0; i < slice.size(); ++i) {
    if (slice[i].length >= 0) sizes[static_cast<int>(i)] = slice[i].length;
  }
  return sizes;
}

// Calls visit(first, length) for each contiguous run of elements that a slice has in the tensor.
template <typename Visit>
void VisitRows(const Shape& whole, const TfSlice& slice, Visit&& visit) {
  const Shape sizes = SizesOf(whole, slice);
  if (sizes.size() == 0) return;
  if (whole.rank() == 0) return visit(0, 1);
  const int last = whole.rank() - 1;
  std::vector<int64_t> index(static_cast<size_t>(whole.rank()), 0);
  while (true) {
    int64_t first = 0;
    for (int i = 0; i <= last; ++i)
      first =
          first * whole[i] + index[static_cast<size_t>(i)] + slice[static_cast<size_t>(i)].start;
    visit(first, sizes[last]);
    int i = last - 1;
    for (; i >= 0 && ++index[static_cast<size_t>(i)] == sizes[i]; --i)
      index[static_cast<size_t>(i)] = 0;
    if (i < 0) return;
  }
}

}  // namespace

bool IsGlobalStep(std::string_view name) { return std::ranges::count(kGlobalSteps, name) > 0; }

void TfTensors::Refuse(std::string_view what) const {
  throw DataError(fmt::format("[io.tf] {}: {}", path_, what));
}

void TfTensors::Add(const std::string& name, TfType type, std::span<const int64_t> dims,
                    std::vector<TfPart> parts) {
  const bool is_step = IsGlobalStep(name);
  const bool may_be_integer = is_step || (name == kQuantizationStep && dims.empty());
  const bool readable =
      (may_be_integer ? SizeOf(type) > 0 : IsFloat(type)) && dims.size() <= Shape::kMaxRank;
  if (!readable || is_step) other_tensors_.push_back(Describe(name, type, dims));
  if (is_step && !readable) unreadable_step_ = other_tensors_.back();
  if (!readable) return;
  const std::optional<int64_t> count = Count(dims);
  if (!count) Refuse(fmt::format("{}: invalid shape: got [{}]", name, ToText(dims)));
  const auto [it, is_new] = tensors_.emplace(name, Tensor{type, Shape(dims), std::move(parts)});
  if (!is_new) Refuse(fmt::format("{}: appears twice", name));
  CheckParts(name, it->second);
  if (!is_step) names_.push_back(name);
}

void TfTensors::CheckParts(const std::string& name, const Tensor& tensor) const {
  int64_t elements = 0;
  for (const TfPart& part : tensor.parts) {
    bool fits = part.slice.empty() || part.slice.size() == static_cast<size_t>(tensor.shape.rank());
    for (size_t i = 0; fits && i < part.slice.size(); ++i) {
      const auto [start, length] = part.slice[i];
      const int64_t size = tensor.shape[static_cast<int>(i)];
      fits = length < 0 ? start == 0 : start >= 0 && length <= size && start <= size - length;
    }
    if (!fits) Refuse(fmt::format("{}: a slice lies outside of the tensor", name));
    const int64_t count = SizesOf(tensor.shape, part.slice).size();
    if (count > tensor.shape.size() - elements) Refuse(fmt::format("{}: slices overlap", name));
    elements += count;
    CheckPartFits(name, tensor.type, part, static_cast<uint64_t>(count));
  }
  if (elements != tensor.shape.size()) {
    Refuse(fmt::format("{}: slices are missing: got {} elements, want {}", name, elements,
                       tensor.shape.size()));
  }
}

std::vector<char> TfTensors::ReadChecked(const std::string& name, const Tensor& tensor,
                                         const TfPart& part) const {
  const uint64_t bytes =
      static_cast<uint64_t>(SizesOf(tensor.shape, part.slice).size()) * SizeOf(tensor.type);
  std::vector<char> values(bytes);
  ReadPart(name, tensor.type, part, values);
  return values;
}

void TfTensors::Read(const std::string& name, std::span<float> out) const {
  const Tensor& tensor = tensors_.at(name);
  CAROLE_CHECK_EQ(static_cast<int64_t>(out.size()), tensor.shape.size(), "elements of {}", name);
  if (!IsFloat(tensor.type)) {
    out[0] = static_cast<float>(ReadStep(name, tensor));
    return;
  }
  if (tensor.parts.size() == 1 && tensor.type == TfType::kFloat) {
    return ReadPart(name, tensor.type, tensor.parts[0],
                    {reinterpret_cast<char*>(out.data()), out.size_bytes()});
  }
  std::vector<bool> written(out.size(), false);
  for (const TfPart& part : tensor.parts) {
    const std::vector<char> bytes = ReadChecked(name, tensor, part);
    std::vector<float> values(bytes.size() / SizeOf(tensor.type));
    ConvertToFloats(tensor.type, {bytes.data(), bytes.size()}, values);
    TfSlice slice = part.slice;
    slice.resize(static_cast<size_t>(tensor.shape.rank()));
    auto from = values.begin();
    VisitRows(tensor.shape, slice, [&](int64_t first, int64_t length) {
      std::copy(from, from + length, out.begin() + first);
      std::fill(written.begin() + first, written.begin() + first + length, true);
      from += length;
    });
  }
  if (std::ranges::find(written, false) != written.end())
    Refuse(fmt::format("{}: slices leave gaps", name));
}

int64_t TfTensors::ReadStep(const std::string& name, const Tensor& tensor) const {
  const auto refuse = [&](const std::string& got) {
    Refuse(
        fmt::format("{}: is not a training step: got {}, want 0 to {} as one whole number; use "
                    "another checkpoint",
                    name, got, kMaxStep));
  };
  if (tensor.shape.size() != 1) refuse("shape " + tensor.shape.ToString());
  const auto part = std::ranges::find_if(tensor.parts, [&](const TfPart& stored) {
    return SizesOf(tensor.shape, stored.slice).size() == 1;
  });
  const std::vector<char> bytes = ReadChecked(name, tensor, *part);
  const std::string_view value(bytes.data(), bytes.size());
  if (!IsFloat(tensor.type)) {
    const int64_t step = ConvertToInteger(tensor.type, value);
    if (step < 0 || step > kMaxStep) refuse(std::to_string(step));
    return step;
  }
  double step = 0;
  if (tensor.type == TfType::kDouble) {
    step = LoadLittleEndian<double>(value.data());
  } else {
    float number = 0;
    ConvertToFloats(tensor.type, value, {&number, 1});
    step = number;
  }
  const bool in_range = step >= 0 && step <= static_cast<double>(kMaxStep);  // false for NaN
  if (!in_range || step != std::floor(step)) refuse(fmt::format("{}", step));
  return static_cast<int64_t>(step);
}

std::optional<int64_t> TfTensors::step() const {
  for (const char* name : kGlobalSteps) {
    const auto it = tensors_.find(name);
    if (it != tensors_.end()) return ReadStep(name, it->second);
  }
  if (unreadable_step_.empty()) return std::nullopt;
  Refuse(fmt::format("{}: is not a training step: want one whole number; use another checkpoint",
                     unreadable_step_));
}

}  // namespace carole::io
