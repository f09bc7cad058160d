// Convolutions and their gradients by cuDNN's graph API. The only file that includes the headers of
// cudnn-frontend, which take long to compile.
//
// Why this is more than one call of cuDNN. The operation that the graph of a net asks for is not
// always the one that cuDNN computes fast, or at all:
//   * TensorFlow's SAME padding may add more on one side of the image than on the other. cuDNN pads
//     both sides by the same amount.
//   * Tensor cores want 16 bytes of channels for each pixel, which are 8 channels in 16 bits. An
//     image has 3.
//   * For filters that span the whole image (VGG's fc6: 7x7x512) cuDNN has few kernels, in 16 bits
//     none that uses tensor cores. As a matrix product the same sums are fast.
//   * With few filters, kernels that add a bias are slow: 250 TFLOP/s for VGG's conv1_2 (64
//     filters), against 700 TFLOP/s with 128 filters (batch 128, cuDNN 9.19 on an H200).
//   * Fused forms (bias, residual, ReLU; or a ReLU mask on the data gradient) exist for some tasks
//     only, and are not always faster than a plain convolution and a separate kernel.
//   * Filter gradients of 16-bit operands come rounded to 16 bits: for Hopper, cuDNN 9.19 has no
//     plan that writes them in fp32.
//
// Data layout. Images are NHWC and filters (K,R,S,C) in memory. Shapes are listed as x (N,C,H,W),
// w (K,C,R,S), y (N,K,P,Q).
//
// The forms of a task (ConvolutionTask in convolution_task.h):
//   plain          as the operation says
//   border         zeros around the image become part of x, if SAME pads the sides unequally
//   channels       x and w get channels of zeros, up to 4 or 8
//   matrix product a filter that spans the image: x (N, C*H*W, 1, 1), w (K, C*R*S, 1, 1)
//   pixel blocks   space to depth, for the first layer of a net (see the example)
//   output pairs   two neighboring outputs of a row become one pixel with twice the channels; the
//                  filter is one column wider, and the horizontal stride is 2
// Each form exists fused and unfused.
//
// A worked example of pixel blocks: ResNet's first layer, batch 8, 16 bits.
//   asked:  x (8,3,224,224), w (64,3,7,7), stride 2, padding 3  ->  y (8,64,112,112)
//   A block has 2 rows (the stride) and 4 columns (two outputs of stride 2). It holds 2*4*3 = 24
//   channels, padded to 32. A filter of 7x7 needs ceil(7/2) = 4 rows of blocks and
//   ceil((7+2)/4) = 3 columns: 7 for the first output, and 2 more because the second output
//   starts 2 pixels farther to the right. The 64 filters of the first output come first, then
//   those of the second:
//   done:   x (8,32,115,58), w (128,32,4,3), stride 1, no padding  ->  y (8,128,112,56)
//   y (8,128,112,56) and (8,64,112,112) are the same bytes in NHWC: 128 channels of one pixel are
//   64 channels of two neighboring pixels. So y needs no copy. This takes 0.28 ms instead of 1.54
//   ms at batch 256; the gradient of the filter takes 0.46 ms instead of 0.88 ms (cuDNN 9.19 on an
//   H200).
//
// The phases, at construction of a kernel:
//   1. ForLibrary() chooses border, channels, matrix product or pixel blocks, by rule.
//   2. FastestForm() chooses between single outputs and output pairs, and FusedIfFaster() between
//      fused and unfused. Both time the plans of both forms (plans/fastest_plan.h) and remember the
//      answer (plans/choose_once.h). For an unfused form, the time includes a copy of the result,
//      since the separate kernel reads and writes it once more.
//   3. PlanOnce() plans each form once for each device, since nets repeat their shapes. Only
//      deterministic plans with sums in fp32 are allowed (UnwantedNumerics()). Plans with much
//      scratch memory (over 1 GiB) are used only if there is no other.
// And at each run:
//   4. Copy what has another form than the operation's into the workspace: image, filter, bias.
//   5. Execute the plan.
//   6. Copy results back: crop dx, cast dw to fp32 and drop its channels of zeros. Then run what
//      was not fused: bias, residual and ReLU, the mask, the gradient of the bias.
// The workspace holds, in this order: image, filter or its gradient, bias, cuDNN's own scratch.
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

constexpr auto kIn = kPosition<Conv2dBackwardDataInputs>;
constexpr auto kOut = kPosition<Conv2dBackwardDataOutputs>;

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor_attributes>;

using Task = ConvolutionTask;
using Direction = Task::Direction;
enum Uid : int64_t { kX = 1, kW, kY, kBias, kResidual, kReluY };

void CheckPlan(fe::error_t error, const std::string& what) {
  if (error.is_good()) return;
  throw DeviceError(fmt::format("[cudnn] {}: cuDNN failed: {}", what, error.get_message()));
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
  // This order of operations is the one that cuDNN's fused kernels have.
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

// Returns the numerical properties that a plan must not have. Results must have the same bits in
// every run, sums are made in fp32, and operands are not rounded. The exception is TF32, if it is
// allowed: rounding fp32 to TF32 is all that tensor cores do with it. FFT and Winograd transforms
// are allowed unless the sums must be exact.
std::vector<fe::NumericalNote_t> UnwantedNumerics(const Task& task, const Device& device) {
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

PlanTimer::TensorBytes TensorSizes(const Task& task) {
  const auto bytes = [](const Shape& shape) { return shape.size() * sizeof(float); };  // at most
  PlanTimer::TensorBytes tensors{{kX, bytes(task.x)}, {kW, bytes(task.w)}, {kY, bytes(task.y)}};
  if (task.bias) tensors.emplace_back(kBias, task.y[1] * sizeof(float));
  if (task.residual) tensors.emplace_back(kResidual, bytes(task.y));
  if (task.mask) tensors.emplace_back(kReluY, bytes(task.x));
  return tensors;
}

// Returns a key that holds everything except the machine that the speed of a task's plans depends
// on.
std::string CacheKey(const Task& task, const Device& device) {
  return task.Describe() + (device.tf32 ? ", tf32" : "");
}

fe::error_t Build(Graph& graph, const Task& task, const Device& device, int64_t scratch_bytes) {
  fe::error_t error = graph.validate();
  if (error.is_good() && device.cudnn == nullptr) error = graph.build_operation_graph();
  if (error.is_good() && device.cudnn != nullptr) error = graph.build_operation_graph(device.cudnn);
  if (error.is_good())
    error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
  if (error.is_bad()) return error;
  graph.deselect_numeric_notes(UnwantedNumerics(task, device))
      .deselect_workspace_greater_than(scratch_bytes);
  error = graph.check_support();
  if (error.is_bad()) return error;
  return BuildFastest(graph, CacheKey(task, device), TensorSizes(task), device);
}

struct Plan {
  std::shared_ptr<Graph> graph;
  fe::error_t error;  // bad: cuDNN has no kernel for the task
};

// Plans a task with at most `scratch_bytes` of scratch memory, for the device's GPU or, unless it
// is null, for the GPU that `described` describes.
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

// Plans a task. A plan that needs much scratch memory is used only if there is no other, and never
// for forms that have an alternative (fused forms and output pairs).
Plan MakePlan(const Task& task, const Device& device, const Description& described = nullptr) {
  constexpr int64_t kMuchScratch = int64_t{1} << 30;
  Plan plan = MakePlanWithin(kMuchScratch, task, device, described);
  if (plan.error.is_good() || !task.IsUnfused() || task.pairs_outputs()) return plan;
  return MakePlanWithin(std::numeric_limits<int64_t>::max(), task, device, described);
}

// Plans each task once for each device: nets repeat their shapes, and planning takes long. The map
// is never destroyed, because at the end of the process the driver may be unloaded first.
const Plan& PlanOnce(const Task& task, const Device& device) {
  static std::mutex mutex;
  static auto& plans = *new std::map<std::tuple<uint64_t, bool, std::string>, Plan>;
  const std::lock_guard lock(mutex);
  const std::tuple key{device.id, device.tf32, task.Describe()};
  if (const auto known = plans.find(key); known != plans.end()) return known->second;
  return plans.emplace(key, MakePlan(task, device)).first->second;
}

// Whether form `one` of the task `asked` is faster than form `other` by more than `milliseconds`.
// For an unfused form of a fused task, a copy of the whole result is timed as well: it stands for
// the separate kernel, which reads and writes the result once more. Returns nothing if a form could
// not be timed.
std::optional<bool> IsFasterForm(const Task& asked, const Task& one, const Task& other,
                                 float milliseconds, const Device& device) {
  const Plan &its = PlanOnce(one, device), &others = PlanOnce(other, device);
  if (its.error.is_bad() || others.error.is_bad()) return its.error.is_good();
  const auto built = [&](const Task& form, const Plan& plan) {
    const bool has_pass = form.IsUnfused() && !asked.IsUnfused();
    const bool is_data = form.direction == Direction::kData;
    const size_t bytes = (is_data ? form.x : form.y).size() * SizeOf(form.type);
    return BuiltGraph{.graph = *plan.graph,
                      .tensors = TensorSizes(form),
                      .copied = {.tensor = is_data ? kX : kY, .bytes = has_pass ? bytes : 0}};
  };
  return IsFaster(built(one, its), built(other, others), milliseconds, device);
}

// Returns the fused form of a task if it is faster, else the unfused one. If timing is off, it
// returns the fused form for a bias, a residual or ReLU, and the unfused one for a mask, for which
// cuDNN has few kernels.
Task FusedIfFaster(const Task& task, const Device& device) {
  if (task.IsUnfused()) return task;
  const Task plain = task.Unfused();
  const auto time = [&] { return IsFasterForm(task, task, plain, 0, device); };
  const bool wants = ChooseOnce(CacheKey(task, device) + ", in one pass", device, !task.mask, time);
  return wants && PlanOnce(task, device).error.is_good() ? task : plain;
}

// Returns the form with output pairs if it is faster or if timing is off, else the form with single
// outputs.
Task FastestForm(const Task& asked, const Device& device) {
  constexpr float kCopies = 0.01F;  // milliseconds for copies of the filter and the bias
  const Task alone = FusedIfFaster(asked, device);
  if (!asked.CanPairOutputs()) return alone;
  const Task pairs = FusedIfFaster(asked.WithPairedOutputs(), device);
  const auto time = [&] { return IsFasterForm(asked, pairs, alone, kCopies, device); };
  const bool wants = ChooseOnce(CacheKey(asked, device) + ", in pairs", device, true, time);
  return wants && PlanOnce(pairs, device).error.is_good() ? pairs : alone;
}

// Base class of the three directions. The workspace holds x, the filter or its gradient, and the
// bias, each in cuDNN's form and only if that differs from the operation's form. cuDNN's scratch
// memory follows.
class Convolution : public CudaKernel {
 public:
  Convolution(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        task_(FastestForm(Task::Of(spec).ForLibrary(device.tf32), device)) {
    const Task asked = Task::Of(spec);
    const auto bytes = [&](const Shape& shape) {
      return AlignUp(shape.size() * SizeOf(asked.type));
    };
    if (task_.a.padding != asked.a.padding) border_ = asked.a.padding;
    const bool uses_pixel_blocks = task_.uses_pixel_blocks();
    if (uses_pixel_blocks || task_.x.size() != asked.x.size()) padded_bytes_ = bytes(task_.x);
    if (uses_pixel_blocks || task_.w.size() != asked.w.size() ||
        spec.outputs[0].dtype != asked.type)
      filter_bytes_ = bytes(task_.w);
    const Plan& plan = PlanOnce(task_, device);
    CheckPlan(plan.error, task_.Describe());
    graph_ = plan.graph;
    int64_t library_bytes = 0;
    CheckPlan(graph_->get_workspace_size(library_bytes), task_.Describe());
    if (task_.bias && (task_.pixel_block.outputs > 1 || task_.type != DType::kF32))
      bias_bytes_ = AlignUp(task_.y[1] * SizeOf(task_.type));
    workspace_bytes_ = padded_bytes_ + filter_bytes_ + bias_bytes_ +
                       static_cast<size_t>(library_bytes) + kScratchAlignment;
  }

 protected:
  // Whether x has another form in cuDNN, and lies at padded().
  bool is_padded() const { return padded_bytes_ > 0; }
  std::byte* padded() const { return memory_.workspace; }
  // The filter, or its gradient, in cuDNN's form; null if it is the same as the operation's.
  std::byte* filter() const {
    return filter_bytes_ > 0 ? memory_.workspace + padded_bytes_ : nullptr;
  }
  // Returns the bias in cuDNN's form, writing it first: once for each output of a pixel block or
  // pair, and rounded to the type of the filter. (For an fp32 bias with 16-bit operands, cuDNN 9.19
  // on Hopper has 5 kernels, which it must compile, instead of 30.)
  std::byte* Bias() const {
    if (bias_bytes_ == 0) return input(2);
    std::byte* const bias = memory_.workspace + padded_bytes_ + filter_bytes_;
    RepeatBias(device_.stream, in<float>(2), in_shape(2)[0], task_.pixel_block.outputs, task_.type,
               bias);
    return bias;
  }
  std::byte* input(size_t i) const { return memory_.inputs[i].data; }
  std::byte* output() const { return memory_.outputs[0].data; }

  // Returns x in cuDNN's form, writing it first.
  std::byte* PaddedInput() const {
    if (!is_padded()) return input(0);
    if (task_.uses_pixel_blocks()) {
      SpaceToDepth(device_.stream, input(0), in_shape(0), border_, task_.pixel_block, padded(),
                   task_.x);
    } else {
      Pad(device_.stream, task_.type, input(0), in_shape(0), border_, padded(), task_.x);
    }
    return padded();
  }

  // Runs the plan. `tensors` holds further tensors of the task, by uid.
  using Pointers = std::unordered_map<int64_t, void*>;
  void Execute(std::byte* x, std::byte* w, std::byte* y, Pointers tensors = {}) const {
    tensors.insert({{kX, x}, {kW, w}, {kY, y}});
    std::byte* const scratch =
        AlignScratch(memory_.workspace + padded_bytes_ + filter_bytes_ + bias_bytes_);
    CheckPlan(graph_->execute(device_.cudnn, tensors, scratch), task_.Describe());
  }

  Task task_;
  Padding border_;  // the border of zeros that becomes part of x

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
    if (!task_.IsUnfused()) return;
    AddBiasRelu(device_.stream, task_.type, output(), in<float>(2), residual,
                PixelsOf(out_shape(0)), out_shape(0)[1],
                spec_.attributes.as<Conv2dAttributes>().relu);
  }

 private:
  std::byte* PaddedFilter() const {
    if (filter() == nullptr) return input(1);
    if (task_.uses_pixel_blocks()) {
      FilterToDepth(device_.stream, input(1), in_shape(1), task_.pixel_block, filter(), task_.w);
    } else if (task_.pairs_outputs()) {
      FilterToPairs(device_.stream, task_.type, input(1), in_shape(1), filter(), task_.w);
    } else {
      Pad(device_.stream, task_.type, input(1), in_shape(1), {}, filter(), task_.w);
    }
    return filter();
  }
};

class Conv2dBackwardData : public Convolution {
 public:
  Conv2dBackwardData(const OpSpec& spec, const Device& device) : Convolution(spec, device) {
    input_layouts_[kIn.w] = Layout::Nhwc();
    if (IsPresent(spec.outputs, kOut.db)) {
      workspace_bytes_ =
          std::max(workspace_bytes_, ColumnSumsBytes(task_.type, PixelsOf(x()), x()[1]));
    }
  }

  void Run(const RunContext&) override {
    Pointers fused;
    if (task_.mask) fused.emplace(kReluY, input(kIn.relu_y));
    Execute(is_padded() ? padded() : output(), input(kIn.w), input(kIn.dy), std::move(fused));
    if (is_padded()) {
      const Padding cut{-border_.top, -border_.left, -border_.bottom, -border_.right};
      Pad(device_.stream, task_.type, padded(), task_.x, cut, output(), x());
    }
    float* const db = out<float>(kOut.db);
    if (IsPresent(spec_.inputs, kIn.relu_y) && !task_.mask) {
      MaskGradient(device_.stream, task_.type, output(), input(kIn.relu_y), PixelsOf(x()), x()[1],
                   db, memory_.workspace);
    } else if (db != nullptr) {
      ColumnSums(device_.stream, task_.type, output(), PixelsOf(x()), x()[1], db,
                 memory_.workspace);
    }
  }

 private:
  const Shape& x() const { return out_shape(kOut.dx); }
};

// Gradient of the filter. CuDNN sums it in fp32 but returns it rounded to the type of its operands,
// as in other frameworks. (For Hopper, cuDNN 9.19 has no plan that returns it in fp32.) If the
// operation asks for fp32, this kernel casts. Otherwise the graph casts it later, together with
// other gradients (kCasts).
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
    if (task_.uses_pixel_blocks()) {
      CastFilterFromDepth(device_.stream, task_.type, filter(), task_.w, task_.pixel_block,
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

bool SupportsBackwardFilter(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && !HasReluYInput(spec);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d, .make = Make<Conv2d>},
    {.kind = op::kConv2dBackwardData, .make = Make<Conv2dBackwardData>},
    {.kind = op::kConv2dBackwardFilter,
     .make = Make<Conv2dBackwardFilter>,
     .supports = SupportsBackwardFilter},
};

}  // namespace

KernelRows Conv2dKernels() { return kRows; }

// For tests: checks that cuDNN has a plan for a convolution. The GPU, described in cuDNN's own
// JSON, need not exist. Output pairs are checked too, if the convolution can use them.
//   require_fused   whether a fused plan is required; otherwise an unfused plan is enough
//   error_text      output: cuDNN's error text, or empty
//   tensor_cores    output: whether there is a plan that uses tensor cores
extern "C" void carole_check_plan(const OpSpec& spec, Precision precision, const std::string& gpu,
                                  bool require_fused, std::string& error_text, bool& tensor_cores) {
  const auto described = std::make_shared<fe::DeviceProperties>();
  fe::error_t error = described->deserialize({gpu.begin(), gpu.end()});
  Device device;
  device.tf32 = precision == Precision::kTf32;
  std::vector<Task> tasks{Task::Of(spec).ForLibrary(device.tf32)};
  if (tasks[0].CanPairOutputs()) tasks.push_back(tasks[0].WithPairedOutputs());
  tensor_cores = true;
  for (const Task& task : tasks) {
    Plan plan{.graph = nullptr, .error = error};
    if (error.is_good()) plan = MakePlan(task, device, described);
    if (plan.error.is_bad() && !require_fused) plan = MakePlan(task.Unfused(), device, described);
    error_text = plan.error.is_good() ? "" : plan.error.get_message();
    if (plan.error.is_bad()) {
      tensor_cores = false;
      return;
    }
    plan.graph->select_numeric_notes({fe::NumericalNote_t::TENSOR_CORE});
    tensor_cores = tensor_cores && plan.graph->check_support().is_good();
  }
}

}  // namespace carole::cuda
