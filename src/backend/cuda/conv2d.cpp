// Convolutions by cuDNN's graph API. The only file with cudnn-frontend's headers, which take long
// to compile.
//
// The library pads alike on both sides only; TensorFlow's SAME does not. There the image is padded
// in the workspace first, and its gradient cut out of it.
#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <map>
#include <mutex>

#include "src/backend/cuda/bias.h"
#include "src/backend/cuda/cuda.h"
#include "src/backend/cuda/pad.h"
#include "src/core/check.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;

enum class Direction : uint8_t { kForward, kData, kFilter };
enum Uid : int64_t { kX = 1, kW, kY };

void CheckPlan(fe::error_t error, const std::string& what) {
  if (error.is_good()) return;
  throw DeviceError(fmt::format("[cudnn] {}: the library refused: {}", what, error.get_message()));
}

// Sizes as the library sees them: padded alike on both sides.
struct Sizes {
  Shape x, w, y;
  Conv2dAttributes a;

  std::string Describe() const {
    return fmt::format("convolution of {} by {} to {}, stride {}x{}, padding {}x{}, dilation {}",
                       x.ToString(), w.ToString(), y.ToString(), a.stride_h, a.stride_w,
                       a.padding.top, a.padding.left, a.dilation);
  }
};

std::shared_ptr<Tensor_attributes> AddTensor(Graph& graph, Uid uid, const Shape& shape) {
  const Shape strides = PlainStrides(shape, Layout::Nhwc());
  return graph.tensor(Tensor_attributes()
                          .set_uid(uid)
                          .set_dim({shape.dims().begin(), shape.dims().end()})
                          .set_stride({strides.dims().begin(), strides.dims().end()})
                          .set_data_type(fe::DataType_t::FLOAT));
}

void MarkResult(Tensor_attributes& result, Uid uid, const Shape& shape) {
  const Shape strides = PlainStrides(shape, Layout::Nhwc());
  result.set_output(true)
      .set_uid(uid)
      .set_dim({shape.dims().begin(), shape.dims().end()})
      .set_stride({strides.dims().begin(), strides.dims().end()})
      .set_data_type(fe::DataType_t::FLOAT);
}

template <typename Attributes>
Attributes Describe(const Conv2dAttributes& a) {
  return Attributes()
      .set_padding({a.padding.top, a.padding.left})
      .set_stride({a.stride_h, a.stride_w})
      .set_dilation({a.dilation, a.dilation});
}

void AddConvolution(Graph& graph, Direction direction, const Sizes& sizes) {
  if (direction == Direction::kForward) {
    auto x = AddTensor(graph, kX, sizes.x);
    auto w = AddTensor(graph, kW, sizes.w);
    MarkResult(*graph.conv_fprop(x, w, Describe<fe::graph::Conv_fprop_attributes>(sizes.a)), kY,
               sizes.y);
  } else if (direction == Direction::kData) {
    auto dy = AddTensor(graph, kY, sizes.y);
    auto w = AddTensor(graph, kW, sizes.w);
    MarkResult(*graph.conv_dgrad(dy, w, Describe<fe::graph::Conv_dgrad_attributes>(sizes.a)), kX,
               sizes.x);
  } else {
    auto dy = AddTensor(graph, kY, sizes.y);
    auto x = AddTensor(graph, kX, sizes.x);
    MarkResult(*graph.conv_wgrad(dy, x, Describe<fe::graph::Conv_wgrad_attributes>(sizes.a)), kW,
               sizes.w);
  }
}

std::shared_ptr<Graph> Plan(Direction direction, const Sizes& sizes, const Device& device) {
  const std::string what = sizes.Describe();
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  AddConvolution(*graph, direction, sizes);
  CheckPlan(graph->validate(), what);
  CheckPlan(graph->build_operation_graph(device.cudnn), what);
  CheckPlan(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), what);
  // The same bits in every run; without --precision=tf32 no rounding of the operands.
  std::vector<fe::NumericalNote_t> unwanted = {fe::NumericalNote_t::NONDETERMINISTIC,
                                               fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION};
  if (!device.tf32) {
    unwanted.push_back(fe::NumericalNote_t::TENSOR_CORE);
    unwanted.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
  }
  graph->deselect_numeric_notes(unwanted);
  CheckPlan(graph->check_support(), what);
  CheckPlan(graph->build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), what);
  return graph;
}

// Nets repeat their shapes, and planning takes long: each is planned once for each handle.
std::shared_ptr<Graph> PlanOnce(Direction direction, const Sizes& sizes, const Device& device) {
  static std::mutex mutex;
  static std::map<std::tuple<cudnnContext*, bool, Direction, std::string>, std::shared_ptr<Graph>>
      plans;
  const std::lock_guard lock(mutex);
  auto& plan = plans[{device.cudnn, device.tf32, direction, sizes.Describe()}];
  if (plan == nullptr) plan = Plan(direction, sizes, device);
  return plan;
}

// What the three directions share. The workspace holds the padded image, if there is one, then the
// library's own.
class Convolution : public CudaKernel {
 public:
  Convolution(const OpSpec& spec, const Device& device, Direction direction, const Shape& x,
              const Shape& w, const Shape& y)
      : CudaKernel(spec, device), sizes_{x, w, y, spec.attributes_as<Conv2dAttributes>()} {
    const Padding p = sizes_.a.padding;
    if (p.top != p.bottom || p.left != p.right) {
      padding_ = p;
      sizes_.x = Shape{x[0], x[1], x[2] + p.top + p.bottom, x[3] + p.left + p.right};
      sizes_.a.padding = {};
      padded_bytes_ = AlignUp(sizes_.x.size() * sizeof(float));
    }
    graph_ = PlanOnce(direction, sizes_, device);
    int64_t library_bytes = 0;
    CheckPlan(graph_->get_workspace_size(library_bytes), sizes_.Describe());
    workspace_bytes_ = padded_bytes_ + static_cast<size_t>(library_bytes);
  }

 protected:
  bool is_padded() const { return padded_bytes_ > 0; }
  float* padded() const { return reinterpret_cast<float*>(memory_.workspace); }

  // The image as the library wants it.
  const float* PaddedInput(const float* x, const Shape& shape) const {
    if (!is_padded()) return x;
    Pad(device_.stream, x, shape, padding_, padded(), sizes_.x);
    return padded();
  }

  void Execute(const float* x, const float* w, const float* y) const {
    std::unordered_map<int64_t, void*> tensors = {
        {kX, const_cast<float*>(x)}, {kW, const_cast<float*>(w)}, {kY, const_cast<float*>(y)}};
    CheckPlan(graph_->execute(device_.cudnn, tensors, memory_.workspace + padded_bytes_),
              sizes_.Describe());
  }

  Sizes sizes_;
  Padding padding_;

 private:
  size_t padded_bytes_ = 0;
  std::shared_ptr<Graph> graph_;
};

int64_t Pixels(const Shape& y) { return y[0] * y[2] * y[3]; }

class Conv2d : public Convolution {
 public:
  Conv2d(const OpSpec& spec, const Device& device)
      : Convolution(spec, device, Direction::kForward, spec.inputs[0].shape, spec.inputs[1].shape,
                    spec.outputs[0].shape) {
    input_layouts_[1] = Layout::Nhwc();
  }

  void Run(const RunContext&) override {
    float* y = out<float>(0);
    Execute(PaddedInput(in<float>(0), in_shape(0)), in<float>(1), y);
    AddBiasRelu(device_.stream, y, in<float>(2), Pixels(out_shape(0)), out_shape(0)[1],
                sizes_.a.relu);
  }
};

class Conv2dBackwardData : public Convolution {
 public:
  Conv2dBackwardData(const OpSpec& spec, const Device& device)
      : Convolution(spec, device, Direction::kData, spec.outputs[0].shape, spec.inputs[1].shape,
                    spec.inputs[0].shape) {
    input_layouts_[1] = Layout::Nhwc();
  }

  void Run(const RunContext&) override {
    float* dx = out<float>(0);
    Execute(is_padded() ? padded() : dx, in<float>(1), in<float>(0));
    if (!is_padded()) return;
    const Padding cut{-padding_.top, -padding_.left, -padding_.bottom, -padding_.right};
    Pad(device_.stream, padded(), sizes_.x, cut, dx, out_shape(0));
  }
};

class Conv2dBackwardFilter : public Convolution {
 public:
  Conv2dBackwardFilter(const OpSpec& spec, const Device& device)
      : Convolution(spec, device, Direction::kFilter, spec.inputs[0].shape, spec.outputs[0].shape,
                    spec.inputs[1].shape) {
    output_layouts_[0] = Layout::Nhwc();
    if (IsPresent(spec.outputs, 1)) {
      workspace_bytes_ =
          std::max(workspace_bytes_, ColumnSumsBytes(Pixels(in_shape(1)), channels()));
    }
  }

  void Run(const RunContext&) override {
    Execute(PaddedInput(in<float>(0), in_shape(0)), out<float>(0), in<float>(1));
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, in<float>(1), Pixels(in_shape(1)), channels(), db,
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

}  // namespace carole::cuda
