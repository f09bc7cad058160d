// Emulates cuDNN's graph API on the CPU; replaces the header of cudnn-frontend (see cuda_runtime.h
// in this folder). It accepts the graphs that src/backend/cuda/convolution/conv2d.cpp builds,
// refuses what the library refuses, and computes them from the dims and strides of the tensors. So
// it detects a wrong shape, type or alignment, and a missing tensor. For each graph it offers
// plans, and some of them must not be used: their results are wrong.
#pragma once

#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/numbers.h"

namespace cudnn_frontend {

enum class error_code_t { OK, INVALID_VALUE, GRAPH_NOT_SUPPORTED, GRAPH_EXECUTION_FAILED };
struct [[nodiscard]] error_t {
  error_t() = default;
  error_t(error_code_t code, std::string message) : code(code), message(std::move(message)) {}
  bool is_good() const { return code == error_code_t::OK; }
  bool is_bad() const { return !is_good(); }
  std::string get_message() { return message; }  // as the library has it
  error_code_t code = error_code_t::OK;
  std::string message;
};

enum class DataType_t { FLOAT, HALF, BFLOAT16 };
inline EmulatedType TypeOf(DataType_t type) {
  return type == DataType_t::BFLOAT16 ? EmulatedType::kBF16
         : type == DataType_t::HALF   ? EmulatedType::kF16
                                      : EmulatedType::kF32;
}
enum class HeurMode_t { A, FALLBACK };
enum class PointwiseMode_t { ADD, RELU_FWD, RELU_BWD };
enum class NumericalNote_t {
  NONDETERMINISTIC,
  REDUCED_PRECISION_REDUCTION,
  DOWN_CONVERT_INPUTS,
  TENSOR_CORE,
  FFT,
  WINOGRAD,
  WINOGRAD_TILE_4x4,
  WINOGRAD_TILE_6x6,
  WINOGRAD_TILE_13x13
};

// The description of another GPU is not supported; tests/backend/cuda/plan_test.cpp uses the real
// cuDNN for that.
struct DeviceProperties {
  error_t deserialize(const std::vector<uint8_t>&) {
    return {error_code_t::GRAPH_NOT_SUPPORTED, "emulated: there are no other GPUs"};
  }
};

namespace graph {

struct Tensor_attributes {
  Tensor_attributes& set_uid(int64_t value) {
    uid = value;
    return *this;
  }
  Tensor_attributes& set_dim(std::vector<int64_t> value) {
    dim = std::move(value);
    return *this;
  }
  Tensor_attributes& set_stride(std::vector<int64_t> value) {
    stride = std::move(value);
    return *this;
  }
  Tensor_attributes& set_data_type(DataType_t value) {
    type = value;
    return *this;
  }
  Tensor_attributes& set_output(bool value) {
    is_virtual = !value;
    return *this;
  }
  const std::vector<int64_t>& get_dim() const { return dim; }
  const std::vector<int64_t>& get_stride() const { return stride; }

  int64_t count() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
  // Returns the offset in memory of element number i, counted with channels last.
  int64_t ElementOffset(int64_t i) const {
    const int64_t pixel = i / dim[1], row = pixel / dim[3];
    return row / dim[2] * stride[0] + i % dim[1] * stride[1] + row % dim[2] * stride[2] +
           pixel % dim[3] * stride[3];
  }

  int64_t uid = 0;
  std::vector<int64_t> dim, stride;
  DataType_t type = DataType_t::FLOAT;
  bool is_virtual = false;  // neither read from memory nor written
};
using TensorPointer = std::shared_ptr<Tensor_attributes>;

struct Convolution_attributes {
  Convolution_attributes& set_padding(std::vector<int64_t> value) {
    padding = std::move(value);
    return *this;
  }
  Convolution_attributes& set_stride(std::vector<int64_t> value) {
    stride = std::move(value);
    return *this;
  }
  Convolution_attributes& set_dilation(std::vector<int64_t> value) {
    dilation = std::move(value);
    return *this;
  }
  std::vector<int64_t> padding, stride, dilation;  // each for rows and for columns
};
using Conv_fprop_attributes = Convolution_attributes;
using Conv_dgrad_attributes = Convolution_attributes;
using Conv_wgrad_attributes = Convolution_attributes;

struct Pointwise_attributes {
  Pointwise_attributes& set_mode(PointwiseMode_t value) {
    mode = value;
    return *this;
  }
  PointwiseMode_t mode = PointwiseMode_t::ADD;
};

// A plan for a graph. A wrong plan adds 1 to each result.
struct EmulatedPlan {
  const char* name;
  std::vector<NumericalNote_t> notes = {};
  int64_t workspace_bytes = 0;
  bool is_wrong = false, can_be_built = true;
};
inline const std::vector<EmulatedPlan>& EmulatedPlans() {
  using enum NumericalNote_t;
  static const std::vector<EmulatedPlan> plans{
      {.name = "not for this GPU", .can_be_built = false},
      {.name = "large", .workspace_bytes = int64_t{2} << 30, .is_wrong = true},
      {.name = "atomics", .notes = {NONDETERMINISTIC}, .is_wrong = true},
      {.name = "narrow sums", .notes = {REDUCED_PRECISION_REDUCTION}, .is_wrong = true},
      {.name = "narrow operands", .notes = {DOWN_CONVERT_INPUTS}, .is_wrong = true},
      {.name = "tensor cores", .notes = {TENSOR_CORE}, .workspace_bytes = 4096},
      {.name = "plain"},
  };
  return plans;
}

class Graph {
 public:
  Graph& set_io_data_type(DataType_t) { return *this; }
  Graph& set_intermediate_data_type(DataType_t type) { return set_compute_data_type(type); }
  Graph& set_compute_data_type(DataType_t type) {
    sums_in_fp32_ = sums_in_fp32_ && IsWide(type);
    return *this;
  }
  Graph& set_device_properties(const std::shared_ptr<const DeviceProperties>&) { return *this; }

  TensorPointer tensor(const Tensor_attributes& attributes) {
    tensors_.push_back(std::make_shared<Tensor_attributes>(attributes));
    return tensors_.back();
  }
  TensorPointer conv_fprop(const TensorPointer& x, const TensorPointer& w,
                           const Convolution_attributes& a) {
    const TensorPointer y = AddStep({.kind = Kind::kForward, .a = x, .b = w, .convolution = a});
    y->dim = {x->dim[0], w->dim[0], OutputSize(*x, *w, a, 0), OutputSize(*x, *w, a, 1)};
    return y;
  }
  TensorPointer conv_dgrad(const TensorPointer& dy, const TensorPointer& w,
                           const Convolution_attributes& a) {
    return AddStep({.kind = Kind::kData, .a = dy, .b = w, .convolution = a});
  }
  TensorPointer conv_wgrad(const TensorPointer& dy, const TensorPointer& x,
                           const Convolution_attributes& a) {
    return AddStep({.kind = Kind::kFilter, .a = dy, .b = x, .convolution = a});
  }
  TensorPointer pointwise(const TensorPointer& a, const Pointwise_attributes& attributes) {
    return pointwise(a, nullptr, attributes);
  }
  TensorPointer pointwise(const TensorPointer& a, const TensorPointer& b,
                          const Pointwise_attributes& attributes) {
    const TensorPointer result =
        AddStep({.kind = Kind::kPointwise, .a = a, .b = b, .mode = attributes.mode});
    result->dim = a->dim;
    return result;
  }

  error_t validate() const {
    if (!sums_in_fp32_) return {error_code_t::INVALID_VALUE, "emulated: want sums in fp32"};
    for (const TensorPointer& t : tensors_) {
      const bool has_strides = t->is_virtual || t->stride.size() == 4;
      if (t->dim.size() != 4 || !has_strides)
        return {error_code_t::INVALID_VALUE, "emulated: a tensor has no dims or strides"};
    }
    if (steps_.back().result->is_virtual)
      return {error_code_t::INVALID_VALUE, "emulated: there is no output"};
    return Fits(steps_.front()) ? error_t()
                                : error_t{error_code_t::INVALID_VALUE, "emulated: dims differ"};
  }
  error_t build_operation_graph() const { return validate(); }
  error_t build_operation_graph(cudnnHandle_t) const { return validate(); }
  error_t create_execution_plans(const std::vector<HeurMode_t>&) const { return {}; }

  Graph& deselect_numeric_notes(const std::vector<NumericalNote_t>& notes) {
    unwanted_.insert(notes.begin(), notes.end());
    return *this;
  }
  Graph& select_numeric_notes(const std::vector<NumericalNote_t>&) { return *this; }
  Graph& deselect_workspace_greater_than(int64_t bytes) {
    max_workspace_bytes_ = bytes;
    return *this;
  }
  error_t check_support() const {
    for (int64_t i = 0; i < get_execution_plan_count(); ++i)
      if (IsSupported(i)) return {};
    return {error_code_t::GRAPH_NOT_SUPPORTED, "emulated: no plan"};
  }
  int64_t get_execution_plan_count() const { return static_cast<int64_t>(EmulatedPlans().size()); }
  error_t build_plan_at_index(int64_t i) {
    if (!IsSupported(i)) return {error_code_t::GRAPH_NOT_SUPPORTED, "emulated: not this plan"};
    built_.insert(i);
    chosen_ = i;
    return {};
  }
  error_t get_workspace_size_plan_at_index(int64_t i, int64_t& bytes) const {
    bytes = EmulatedPlans().at(static_cast<size_t>(i)).workspace_bytes;
    return {};
  }
  error_t get_workspace_size(int64_t& bytes) const {
    return get_workspace_size_plan_at_index(chosen_, bytes);
  }
  error_t get_plan_name_at_index(int64_t i, std::string& name) const {
    name = EmulatedPlans().at(static_cast<size_t>(i)).name;
    return {};
  }
  error_t get_plan_name(std::string& name) const { return get_plan_name_at_index(chosen_, name); }

  using Pointers = std::unordered_map<int64_t, void*>;
  error_t execute(cudnnHandle_t handle, const Pointers& pointers, void* workspace) const {
    return execute_plan_at_index(handle, pointers, workspace, chosen_);
  }
  error_t execute_plan_at_index(cudnnHandle_t handle, const Pointers& pointers, void* workspace,
                                int64_t plan) const {
    const auto is_aligned = [](const void* p, uintptr_t bytes) {
      return reinterpret_cast<uintptr_t>(p) % bytes == 0;
    };
    const EmulatedPlan& chosen = EmulatedPlans().at(static_cast<size_t>(plan));
    bool fits = built_.contains(plan) && is_aligned(workspace, 256) &&
                (workspace != nullptr || chosen.workspace_bytes == 0);
    size_t wanted = 0;
    for (const TensorPointer& t : tensors_) {
      if (t->is_virtual) continue;
      const auto at = pointers.find(t->uid);
      fits = fits && at != pointers.end() && at->second != nullptr && is_aligned(at->second, 16);
      ++wanted;
    }
    if (!fits || wanted != pointers.size())
      return {error_code_t::GRAPH_EXECUTION_FAILED, "emulated: tensors' memory"};
    if (EmulatedStickyError() != cudaSuccess)
      return {error_code_t::GRAPH_EXECUTION_FAILED, "emulated: the GPU has failed"};
    EmulatedPush(handle->stream, [steps = steps_, pointers, workspace, chosen] {
      if (chosen.workspace_bytes > 0)
        std::memset(workspace, 0xFF, static_cast<size_t>(chosen.workspace_bytes));
      Compute(steps, pointers, chosen);
    });
    return {};
  }

 private:
  enum class Kind { kForward, kData, kFilter, kPointwise };
  struct Step {
    Kind kind;
    TensorPointer a, b = nullptr, result = nullptr;  // b may be null
    Convolution_attributes convolution = {};
    PointwiseMode_t mode = PointwiseMode_t::ADD;

    const Tensor_attributes& x() const {
      return *(kind == Kind::kForward ? a : kind == Kind::kData ? result : b);
    }
    const Tensor_attributes& w() const { return *(kind == Kind::kFilter ? result : b); }
    const Tensor_attributes& y() const { return *(kind == Kind::kForward ? result : a); }
    int64_t groups() const { return x().dim[1] / w().dim[1]; }
  };
  using Numbers = std::vector<double>;  // with channels last

  static bool IsWide(DataType_t type) { return type == DataType_t::FLOAT; }
  static int64_t OutputSize(const Tensor_attributes& x, const Tensor_attributes& w,
                            const Convolution_attributes& a, size_t axis) {
    const int64_t window = a.dilation[axis] * (w.dim[2 + axis] - 1) + 1;
    return (x.dim[2 + axis] + 2 * a.padding[axis] - window) / a.stride[axis] + 1;
  }

  // Adds a step and returns its result, which is virtual until set_output() is called.
  TensorPointer AddStep(Step step) {
    step.result = tensor({});
    step.result->is_virtual = true;
    steps_.push_back(step);
    return step.result;
  }

  static bool Fits(const Step& s) {
    const Tensor_attributes &x = s.x(), &w = s.w(), &y = s.y();
    return x.dim[0] == y.dim[0] && w.dim[0] == y.dim[1] && x.dim[1] % w.dim[1] == 0 &&
           w.dim[0] % s.groups() == 0 && y.dim[2] == OutputSize(x, w, s.convolution, 0) &&
           y.dim[3] == OutputSize(x, w, s.convolution, 1);
  }
  // Whether plan number i supports the graph. Results must have the type of their operands, as on
  // Hopper with cuDNN 9.19. Convolutions with groups or dilation cannot be fused here, so that
  // tests also cover the unfused forms.
  bool IsSupported(int64_t i) const {
    const Step& first = steps_.front();
    const bool fuses = steps_.size() > 1;
    if (first.a->type != first.b->type || steps_.back().result->type != first.a->type) return false;
    if (fuses && (first.groups() > 1 || first.convolution.dilation[0] > 1)) return false;
    if (fuses && first.kind == Kind::kFilter) return false;
    const EmulatedPlan& plan = EmulatedPlans().at(static_cast<size_t>(i));
    for (const NumericalNote_t note : plan.notes)
      if (unwanted_.contains(note)) return false;
    return plan.can_be_built && plan.workspace_bytes <= max_workspace_bytes_;
  }

  static void Compute(const std::vector<Step>& steps, const Pointers& pointers,
                      const EmulatedPlan& plan) {
    Numbers carried;  // the result that is passed from step to step
    const auto read = [&](const Tensor_attributes& t) {
      if (t.is_virtual) return std::move(carried);
      Numbers numbers(static_cast<size_t>(t.count()));
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = EmulatedGet(TypeOf(t.type), pointers.at(t.uid),
                                 t.ElementOffset(static_cast<int64_t>(i)));
      return numbers;
    };
    for (const Step& s : steps) {
      Numbers a = read(*s.a);
      Numbers b = s.b == nullptr ? Numbers() : read(*s.b);
      if (s.kind == Kind::kPointwise) {
        carried = Pointwise(s.mode, std::move(a), b);
        continue;
      }
      if (IsWide(s.a->type) && !plan.notes.empty()) {
        EmulatedRoundToTf32(a);
        EmulatedRoundToTf32(b);
      }
      carried = Convolve(s, a, b);
    }
    const Tensor_attributes& result = *steps.back().result;
    for (size_t i = 0; i < carried.size(); ++i) {
      EmulatedPut(TypeOf(result.type), pointers.at(result.uid),
                  result.ElementOffset(static_cast<int64_t>(i)),
                  static_cast<float>(carried[i] + (plan.is_wrong ? 1 : 0)));
    }
  }

  static Numbers Pointwise(PointwiseMode_t mode, Numbers a, const Numbers& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (mode == PointwiseMode_t::ADD) a[i] += b[i % b.size()];  // a bias has one per channel
      if (mode == PointwiseMode_t::RELU_FWD && a[i] < 0) a[i] = 0;
      if (mode == PointwiseMode_t::RELU_BWD && !(b[i] > 0)) a[i] = 0;
    }
    return a;
  }

  // Calls use(element of y, first element of x, first element of w, count) for all rows of
  // products, which are the same in all three directions.
  template <typename Use>
  static void ForEachProduct(const Step& s, const Use& use) {
    const std::vector<int64_t>&x = s.x().dim, &w = s.w().dim, &y = s.y().dim;
    const int64_t channels = w[1], filters = w[0] / s.groups();
    const auto& [padding, stride, dilation] = s.convolution;
    for (int64_t at = 0; at < s.y().count(); ++at) {
      const int64_t k = at % y[1], column = at / y[1] % y[3], row = at / y[1] / y[3] % y[2],
                    image = at / y[1] / y[3] / y[2];
      for (int64_t tap = 0; tap < w[2] * w[3]; ++tap) {
        const int64_t h = row * stride[0] - padding[0] + tap / w[3] * dilation[0];
        const int64_t v = column * stride[1] - padding[1] + tap % w[3] * dilation[1];
        if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
        use(at, ((image * x[2] + h) * x[3] + v) * x[1] + k / filters * channels,
            (k * w[2] * w[3] + tap) * channels, channels);
      }
    }
  }

  static Numbers Convolve(const Step& s, const Numbers& a, const Numbers& b) {
    Numbers result(static_cast<size_t>(s.result->count()));
    ForEachProduct(s, [&](int64_t y, int64_t x, int64_t w, int64_t count) {
      if (s.kind == Kind::kForward) result[y] += EmulatedDot(&a[x], &b[w], count);
      if (s.kind == Kind::kData) EmulatedAddScaled(&result[x], a[y], &b[w], count);
      if (s.kind == Kind::kFilter) EmulatedAddScaled(&result[w], a[y], &b[x], count);
    });
    return result;
  }

  std::vector<TensorPointer> tensors_;
  std::vector<Step> steps_;  // the convolution first; operand `a` of each is the previous result
  std::set<NumericalNote_t> unwanted_;
  int64_t max_workspace_bytes_ = INT64_MAX, chosen_ = -1;
  std::set<int64_t> built_;
  bool sums_in_fp32_ = true;
};

}  // namespace graph
}  // namespace cudnn_frontend
