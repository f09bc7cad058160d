// Convolutions by cuDNN's graph API. The only file with cudnn-frontend's headers, which take long
// to compile.
//
// What the library takes otherwise than it lies here (convolution_task.h) is made so in the
// workspace first: images, filters, biases; and gradients are cut out of what it makes.
#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/backend/cuda/kernels/bias.h"
#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/cuda/plans/choose_once.h"
#include "src/backend/cuda/plans/fastest_plan.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/scratch.h"
#include "src/core/check.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor_attributes>;

using Task = ConvolutionTask;
using Direction = Task::Direction;
enum Uid : int64_t { kX = 1, kW, kY, kBias, kResidual, kReluY };

void CheckPlan(fe::error_t error, const std::string& what) {
  if (error.is_good()) return;
  throw DeviceError(fmt::format("[cudnn] {}: the library refused: {}", what, error.get_message()));
}

fe::DataType_t LibraryType(DType dtype) {
  return dtype == DType::kBF16  ? fe::DataType_t::BFLOAT16
         : dtype == DType::kF16 ? fe::DataType_t::HALF
                                : fe::DataType_t::FLOAT;
}

void Set(Tensor_attributes& tensor, Uid uid, const Shape& shape, DType dtype) {
  const Shape strides = PlainStrides(shape, Layout::Nhwc());
  tensor.set_uid(uid)
      .set_dim({shape.dims().begin(), shape.dims().end()})
      .set_stride({strides.dims().begin(), strides.dims().end()})
      .set_data_type(LibraryType(dtype));
}

TensorPointer AddTensor(Graph& graph, Uid uid, const Shape& shape, DType dtype) {
  Tensor_attributes tensor;
  Set(tensor, uid, shape, dtype);
  return graph.tensor(tensor);
}

template <typename Attributes>
Attributes Describe(const Conv2dAttributes& a) {
  return Attributes()
      .set_padding({a.padding.top, a.padding.left})
      .set_stride({a.stride_h, a.stride_w})
      .set_dilation({a.dilation, a.dilation});
}

TensorPointer AddForward(Graph& graph, const Task& task) {
  using fe::graph::Pointwise_attributes;
  const auto x = AddTensor(graph, kX, task.x, task.type);
  const auto w = AddTensor(graph, kW, task.w, task.type);
  TensorPointer y = graph.conv_fprop(x, w, Describe<fe::graph::Conv_fprop_attributes>(task.a));
  const auto add = [&](const TensorPointer& term) {
    y = graph.pointwise(y, term, Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
  };
  // In the order that the library's own fused kernels have.
  if (task.residual) add(AddTensor(graph, kResidual, task.y, task.type));
  if (task.bias) add(AddTensor(graph, kBias, {1, task.y[1], 1, 1}, task.type));
  if (task.a.relu)
    y = graph.pointwise(y, Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
  return y;
}

void AddConvolution(Graph& graph, const Task& task) {
  TensorPointer result;
  if (task.direction == Direction::kForward) {
    result = AddForward(graph, task);
    Set(*result, kY, task.y, task.type);
  } else if (task.direction == Direction::kData) {
    const auto dy = AddTensor(graph, kY, task.y, task.type);
    const auto w = AddTensor(graph, kW, task.w, task.type);
    result = graph.conv_dgrad(dy, w, Describe<fe::graph::Conv_dgrad_attributes>(task.a));
    if (task.mask) {
      const auto relu_y = AddTensor(graph, kReluY, task.x, task.type);
      result->set_dim(relu_y->get_dim()).set_stride(relu_y->get_stride());
      result = graph.pointwise(
          result, relu_y,
          fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_BWD));
    }
    Set(*result, kX, task.x, task.type);
  } else {
    const auto dy = AddTensor(graph, kY, task.y, task.type);
    const auto x = AddTensor(graph, kX, task.x, task.type);
    result = graph.conv_wgrad(dy, x, Describe<fe::graph::Conv_wgrad_attributes>(task.a));
    Set(*result, kW, task.w, task.type);
  }
  result->set_output(true);
}

// The same bits in every run; sums in fp32; operands as they are, but fp32 rounded to TF32 where
// that is allowed: all that tensor cores do with it. Transforms only where the sums need not be
// exact.
std::vector<fe::NumericalNote_t> Unwanted(const Task& task, const Device& device) {
  std::vector<fe::NumericalNote_t> notes = {fe::NumericalNote_t::NONDETERMINISTIC,
                                            fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
                                            fe::NumericalNote_t::DOWN_CONVERT_INPUTS};
  if (task.type == DType::kF32 && !device.tf32) notes.push_back(fe::NumericalNote_t::TENSOR_CORE);
  if (task.a.exact) {
    using enum fe::NumericalNote_t;
    notes.insert(notes.end(),
                 {FFT, WINOGRAD, WINOGRAD_TILE_4x4, WINOGRAD_TILE_6x6, WINOGRAD_TILE_13x13});
  }
  return notes;
}

PlanTimer::TensorBytes Tensors(const Task& task) {
  const auto bytes = [](const Shape& shape) { return shape.size() * sizeof(float); };  // at most
  PlanTimer::TensorBytes tensors{{kX, bytes(task.x)}, {kW, bytes(task.w)}, {kY, bytes(task.y)}};
  if (task.bias) tensors.emplace_back(kBias, task.y[1] * sizeof(float));
  if (task.residual) tensors.emplace_back(kResidual, bytes(task.y));
  if (task.mask) tensors.emplace_back(kReluY, bytes(task.x));
  return tensors;
}

// All that the speed of a task's plans depends on beside the machine.
std::string KeyOf(const Task& task, const Device& device) {
  return task.Describe() + (device.tf32 ? ", tf32" : "");
}

fe::error_t Build(Graph& graph, const Task& task, const Device& device, int64_t scratch_bytes) {
  fe::error_t error = graph.validate();
  if (error.is_good() && device.cudnn == nullptr) error = graph.build_operation_graph();
  if (error.is_good() && device.cudnn != nullptr) error = graph.build_operation_graph(device.cudnn);
  if (error.is_good())
    error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
  if (error.is_bad()) return error;
  graph.deselect_numeric_notes(Unwanted(task, device))
      .deselect_workspace_greater_than(scratch_bytes);
  error = graph.check_support();
  if (error.is_bad()) return error;
  return BuildFastest(graph, KeyOf(task, device), Tensors(task), device);
}

struct Plan {
  std::shared_ptr<Graph> graph;
  fe::error_t error;  // bad: the library has no kernel for it
};

// For the device's GPU, or one that is described, with so much scratch memory.
using Description = std::shared_ptr<const fe::DeviceProperties>;
Plan MakePlanWithin(int64_t scratch_bytes, const Task& task, const Device& device,
                    const Description& described) {
  Plan plan{.graph = std::make_shared<Graph>(), .error = {}};
  if (described != nullptr) plan.graph->set_device_properties(described);
  plan.graph->set_io_data_type(LibraryType(task.type))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  AddConvolution(*plan.graph, task);
  plan.error = Build(*plan.graph, task, device, scratch_bytes);
  return plan;
}

// A plan that wants much scratch memory is taken only where there is no other, and never for what
// can be done otherwise.
Plan MakePlan(const Task& task, const Device& device, const Description& described = nullptr) {
  constexpr int64_t kMuchScratch = int64_t{1} << 30;
  Plan plan = MakePlanWithin(kMuchScratch, task, device, described);
  if (plan.error.is_good() || !task.IsPlain() || task.in_pairs()) return plan;
  return MakePlanWithin(std::numeric_limits<int64_t>::max(), task, device, described);
}

// Nets repeat their shapes, and planning takes long: each is planned once for each device. Never
// destroyed: at the end of the process the driver may be gone first.
const Plan& PlanOnce(const Task& task, const Device& device) {
  static std::mutex mutex;
  static auto& plans = *new std::map<std::tuple<uint64_t, bool, std::string>, Plan>;
  const std::lock_guard lock(mutex);
  const std::tuple key{device.id, device.tf32, task.Describe()};
  if (const auto known = plans.find(key); known != plans.end()) return known->second;
  return plans.emplace(key, MakePlan(task, device)).first->second;
}

// Whether one form of a task is faster than another by more than `milliseconds`. Where bias and
// ReLU, or its mask, are left out, a pass behind it reads and writes the whole result once more, as
// a copy does.
std::optional<bool> IsFasterForm(const Task& asked, const Task& one, const Task& other,
                                 float milliseconds, const Device& device) {
  const Plan &its = PlanOnce(one, device), &others = PlanOnce(other, device);
  if (its.error.is_bad() || others.error.is_bad()) return its.error.is_good();
  const auto built = [&](const Task& form, const Plan& plan) {
    const bool has_pass = form.IsPlain() && !asked.IsPlain();
    const bool is_data = form.direction == Direction::kData;
    const size_t bytes = (is_data ? form.x : form.y).size() * SizeOf(form.type);
    return BuiltGraph{.graph = *plan.graph,
                      .tensors = Tensors(form),
                      .copied = {.tensor = is_data ? kX : kY, .bytes = has_pass ? bytes : 0}};
  };
  return IsFaster(built(one, its), built(other, others), milliseconds, device);
}

// In one pass where that is faster. Untimed, kernels that add a bias are taken for it, those with a
// mask, which the library has few of, are not.
Task InFewPasses(const Task& task, const Device& device) {
  if (task.IsPlain()) return task;
  const Task plain = task.Plain();
  const auto time = [&] { return IsFasterForm(task, task, plain, 0, device); };
  const bool wants = ChooseOnce(KeyOf(task, device) + ", in one pass", device, !task.mask, time);
  return wants && PlanOnce(task, device).error.is_good() ? task : plain;
}

// In pairs of outputs where that is faster, or untimed.
Task InFastestForm(const Task& asked, const Device& device) {
  constexpr float kCopies = 0.01F;  // milliseconds, of the filter and the bias
  const Task alone = InFewPasses(asked, device);
  if (!asked.FitsPairs()) return alone;
  const Task pairs = InFewPasses(asked.InPairs(), device);
  const auto time = [&] { return IsFasterForm(asked, pairs, alone, kCopies, device); };
  const bool wants = ChooseOnce(KeyOf(asked, device) + ", in pairs", device, true, time);
  return wants && PlanOnce(pairs, device).error.is_good() ? pairs : alone;
}

// What the three directions share. The workspace holds the padded image, if there is one, then the
// filter or its gradient and the bias, if the library has them otherwise, then the library's own.
class Convolution : public CudaKernel {
 public:
  Convolution(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        task_(InFastestForm(Task::Of(spec).ForLibrary(device.tf32), device)) {
    const Task asked = Task::Of(spec);
    const auto bytes = [&](const Shape& shape) {
      return AlignUp(shape.size() * SizeOf(asked.type));
    };
    if (task_.a.padding != asked.a.padding) frame_ = asked.a.padding;
    const bool in_blocks = task_.in_blocks();
    if (in_blocks || task_.x.size() != asked.x.size()) padded_bytes_ = bytes(task_.x);
    if (in_blocks || task_.w.size() != asked.w.size() || spec.outputs[0].dtype != asked.type)
      filter_bytes_ = bytes(task_.w);
    const Plan& plan = PlanOnce(task_, device);
    CheckPlan(plan.error, task_.Describe());
    graph_ = plan.graph;
    int64_t library_bytes = 0;
    CheckPlan(graph_->get_workspace_size(library_bytes), task_.Describe());
    if (task_.bias && (task_.blocks.outputs > 1 || task_.type != DType::kF32))
      bias_bytes_ = AlignUp(task_.y[1] * SizeOf(task_.type));
    workspace_bytes_ = padded_bytes_ + filter_bytes_ + bias_bytes_ +
                       static_cast<size_t>(library_bytes) + kScratchAlignment;
  }

 protected:
  bool is_padded() const { return padded_bytes_ > 0; }
  std::byte* padded() const { return memory_.workspace; }
  // The filter, or its gradient, as the library has it; null where it lies so outside.
  std::byte* filter() const {
    return filter_bytes_ > 0 ? memory_.workspace + padded_bytes_ : nullptr;
  }
  // The bias as the library has it: once for each output of a block, rounded as the filter is (for
  // fp32 beside 16 bits it has 5 kernels, which it compiles, instead of 30: cuDNN 9.19 on Hopper).
  std::byte* Bias() const {
    if (bias_bytes_ == 0) return input(2);
    std::byte* const bias = memory_.workspace + padded_bytes_ + filter_bytes_;
    RepeatBias(device_.stream, in<float>(2), in_shape(2)[0], task_.blocks.outputs, task_.type,
               bias);
    return bias;
  }
  std::byte* input(size_t i) const { return memory_.inputs[i].data; }
  std::byte* output() const { return memory_.outputs[0].data; }

  // The image as the library wants it.
  std::byte* PaddedInput() const {
    if (!is_padded()) return input(0);
    if (task_.in_blocks()) {
      SpaceToDepth(device_.stream, input(0), in_shape(0), frame_, task_.blocks, padded(), task_.x);
    } else {
      Pad(device_.stream, task_.type, input(0), in_shape(0), frame_, padded(), task_.x);
    }
    return padded();
  }

  // `tensors`: what the task has beside these.
  using Pointers = std::unordered_map<int64_t, void*>;
  void Execute(std::byte* x, std::byte* w, std::byte* y, Pointers tensors = {}) const {
    tensors.insert({{kX, x}, {kW, w}, {kY, y}});
    std::byte* const scratch =
        AlignScratch(memory_.workspace + padded_bytes_ + filter_bytes_ + bias_bytes_);
    CheckPlan(graph_->execute(device_.cudnn, tensors, scratch), task_.Describe());
  }

  Task task_;
  Padding frame_;  // what is put around the image before the library has it

 private:
  size_t padded_bytes_ = 0, filter_bytes_ = 0, bias_bytes_ = 0;
  std::shared_ptr<Graph> graph_;
};

class Conv2d : public Convolution {
 public:
  Conv2d(const OpSpec& spec, const Device& device) : Convolution(spec, device) {
    input_layouts_[1] = Layout::Nhwc();
  }

  void Run(const RunContext&) override {
    std::byte* residual = IsPresent(spec_.inputs, 3) ? input(3) : nullptr;
    Pointers fused;
    if (task_.bias) fused.emplace(kBias, Bias());
    if (task_.residual) fused.emplace(kResidual, residual);
    Execute(PaddedInput(), PaddedFilter(), output(), std::move(fused));
    if (!task_.IsPlain()) return;
    AddBiasRelu(device_.stream, task_.type, output(), in<float>(2), residual,
                PixelsOf(out_shape(0)), out_shape(0)[1],
                spec_.attributes_as<Conv2dAttributes>().relu);
  }

 private:
  std::byte* PaddedFilter() const {
    if (filter() == nullptr) return input(1);
    if (task_.in_blocks()) {
      FilterToDepth(device_.stream, input(1), in_shape(1), task_.blocks, filter(), task_.w);
    } else if (task_.in_pairs()) {
      FilterToPairs(device_.stream, task_.type, input(1), in_shape(1), filter(), task_.w);
    } else {
      Pad(device_.stream, task_.type, input(1), in_shape(1), {}, filter(), task_.w);
    }
    return filter();
  }
};

class Conv2dBackwardData : public Convolution {
  using Places = Conv2dBackwardDataPlaces;

 public:
  Conv2dBackwardData(const OpSpec& spec, const Device& device) : Convolution(spec, device) {
    input_layouts_[Places::kW] = Layout::Nhwc();
    if (IsPresent(spec.outputs, Places::kDb)) {
      workspace_bytes_ =
          std::max(workspace_bytes_, ColumnSumsBytes(task_.type, PixelsOf(x()), x()[1]));
    }
  }

  void Run(const RunContext&) override {
    Pointers fused;
    if (task_.mask) fused.emplace(kReluY, input(Places::kReluY));
    Execute(is_padded() ? padded() : output(), input(Places::kW), input(Places::kDy),
            std::move(fused));
    if (is_padded()) {
      const Padding cut{-frame_.top, -frame_.left, -frame_.bottom, -frame_.right};
      Pad(device_.stream, task_.type, padded(), task_.x, cut, output(), x());
    }
    float* const db = out<float>(Places::kDb);
    if (IsPresent(spec_.inputs, Places::kReluY) && !task_.mask) {
      MaskGradient(device_.stream, task_.type, output(), input(Places::kReluY), PixelsOf(x()),
                   x()[1], db, memory_.workspace);
    } else if (db != nullptr) {
      ColumnSums(device_.stream, task_.type, output(), PixelsOf(x()), x()[1], db,
                 memory_.workspace);
    }
  }

 private:
  const Shape& x() const { return out_shape(Places::kDx); }
};

// The gradient is summed in fp32, but comes rounded to the type of its operands, as in other
// frameworks, and is cast, by the plan where the spec wants it so (kCasts), else here: for Hopper
// cuDNN 9.19 has no plan that hands it out in fp32.
class Conv2dBackwardFilter : public Convolution {
 public:
  Conv2dBackwardFilter(const OpSpec& spec, const Device& device) : Convolution(spec, device) {
    output_layouts_[0] = Layout::Nhwc();
    if (IsPresent(spec.outputs, 1)) {
      workspace_bytes_ = std::max(workspace_bytes_,
                                  ColumnSumsBytes(task_.type, PixelsOf(in_shape(1)), channels()));
    }
  }

  void Run(const RunContext&) override {
    Execute(PaddedInput(), filter() != nullptr ? filter() : output(), input(1));
    if (task_.in_blocks()) {
      CastFilterFromDepth(device_.stream, task_.type, filter(), task_.w, task_.blocks,
                          out<float>(0), out_shape(0));
    } else if (filter() != nullptr) {
      CastFilter(device_.stream, task_.type, filter(), task_.w, out<float>(0), out_shape(0));
    }
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, task_.type, input(1), PixelsOf(in_shape(1)), channels(), db,
                 memory_.workspace);
    }
  }

 private:
  int64_t channels() const { return in_shape(1)[1]; }
};

}  // namespace

std::unique_ptr<Kernel> MakeConv2d(const OpSpec& spec, const Device& device) {
  return std::make_unique<Conv2d>(spec, device);
}
std::unique_ptr<Kernel> MakeConv2dBackwardData(const OpSpec& spec, const Device& device) {
  return std::make_unique<Conv2dBackwardData>(spec, device);
}
std::unique_ptr<Kernel> MakeConv2dBackwardFilter(const OpSpec& spec, const Device& device) {
  return std::make_unique<Conv2dBackwardFilter>(spec, device);
}

// Whether cuDNN has a plan for a convolution on a GPU that is described in its own JSON and need
// not be there, or, unless `in_one_pass`, for what is not left to another pass: `problem` gets its
// words, or nothing; `tensor_cores`: whether a plan uses them. In pairs of outputs, too, where they
// may be. For tests.
extern "C" void carole_check_plan(const OpSpec& spec, Precision precision, const std::string& gpu,
                                  bool in_one_pass, std::string& problem, bool& tensor_cores) {
  const auto described = std::make_shared<fe::DeviceProperties>();
  fe::error_t error = described->deserialize({gpu.begin(), gpu.end()});
  Device device;
  device.tf32 = precision == Precision::kTf32;
  std::vector<Task> tasks{Task::Of(spec).ForLibrary(device.tf32)};
  if (tasks[0].FitsPairs()) tasks.push_back(tasks[0].InPairs());
  tensor_cores = true;
  for (const Task& task : tasks) {
    Plan plan{.graph = nullptr, .error = error};
    if (error.is_good()) plan = MakePlan(task, device, described);
    if (plan.error.is_bad() && !in_one_pass) plan = MakePlan(task.Plain(), device, described);
    problem = plan.error.is_good() ? "" : plan.error.get_message();
    if (plan.error.is_bad()) {
      tensor_cores = false;
      return;
    }
    plan.graph->select_numeric_notes({fe::NumericalNote_t::TENSOR_CORE});
    tensor_cores = tensor_cores && plan.graph->check_support().is_good();
  }
}

}  // namespace carole::cuda
