// Times the convolutions of ResNet-50 with parts of batch norm fused into them by cuDNN. Next to
// each fused form is the time of the plain convolution, and of the passes over memory that the
// fusion saves. A fused form is worth an implementation if it is faster than both together.
//
//   build/carole_fused_forms [SECONDS]     on a GPU; stops after this time (default 110)
//   build/carole_fused_forms plans         without a GPU: the plans that cuDNN offers for an H200
//
// The forms, for a convolution between two batch norms with ReLU:
//   forward            y = conv(x)
//     statistics       also the sums of y and of y*y for each channel (genstats). Saves one read of
//                      y
//     normalized       x is normalized and rectified while it is read, and the same sums. Saves one
//                      read of y, and a read and a write of x
//   data gradient      dx = gradient of x
//     weights of bn    the mask of ReLU, and the sums that the gradient of batch norm needs.
//                      Saves a read and a write of dx and a read of the input of the batch norm
//   filter gradient    dw = gradient of w
//     normalized       x is normalized and rectified while it is read. Goes with the form forward,
//                      normalized, after which the rectified x is not in memory
//
// A pass is timed as a copy within device memory that moves the same number of bytes. Plans are
// those that a training may use: deterministic, with sums in fp32.
#include <cuda_runtime.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/backend/cuda/plans/fastest_plan.h"
#include "src/core/error.h"
#include "tests/support/described_gpu.h"

namespace carole::bench {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Pointwise_attributes;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;
using Dims = std::vector<int64_t>;
using cuda::PlanTimer;

// A convolution and how often it is in the net. `size` is the height and width of its input.
struct Layer {
  int64_t channels, filters, size, window, stride;
  int count;
  static constexpr int64_t kBatch = 256;

  Dims x() const { return {kBatch, channels, size, size}; }
  Dims w() const { return {filters, channels, window, window}; }
  Dims y() const { return {kBatch, filters, size / stride, size / stride}; }
};

// All convolutions of TF-Slim's resnet_v1_50 but the first. The last unit of a block has its
// stride.
constexpr Layer kLayers[] = {
    {64, 64, 56, 1, 1, 1},    {256, 64, 56, 1, 1, 2},   {64, 64, 56, 3, 1, 2},
    {64, 64, 56, 3, 2, 1},    {64, 256, 56, 1, 1, 3},   {64, 256, 28, 1, 1, 1},
    {256, 128, 28, 1, 1, 1},  {512, 128, 28, 1, 1, 3},  {128, 128, 28, 3, 1, 3},
    {128, 128, 28, 3, 2, 1},  {128, 512, 28, 1, 1, 3},  {128, 512, 14, 1, 1, 1},
    {256, 512, 28, 1, 1, 1},  {512, 256, 14, 1, 1, 1},  {1024, 256, 14, 1, 1, 5},
    {256, 256, 14, 3, 1, 5},  {256, 256, 14, 3, 2, 1},  {256, 1024, 14, 1, 1, 5},
    {256, 1024, 7, 1, 1, 1},  {512, 1024, 14, 1, 1, 1}, {1024, 512, 7, 1, 1, 1},
    {2048, 512, 7, 1, 1, 2},  {512, 512, 7, 3, 1, 3},   {512, 2048, 7, 1, 1, 3},
    {1024, 2048, 7, 1, 1, 1},
};

enum class Direction : uint8_t { kForward, kData, kFilter };

// A form of a convolution. The passes are numbers of reads or writes of x and y that it saves.
struct Form {
  std::string_view name;
  Direction direction;
  bool normalizes, sums;
  int passes_x, passes_y;
};
constexpr Form kForms[] = {
    {"forward", Direction::kForward, false, false, 0, 0},
    {"forward, statistics", Direction::kForward, false, true, 0, 1},
    {"forward, normalized, statistics", Direction::kForward, true, true, 2, 1},
    {"data gradient", Direction::kData, false, false, 0, 0},
    {"data gradient, mask, weights of bn", Direction::kData, true, true, 3, 0},
    {"filter gradient", Direction::kFilter, false, false, 0, 0},
    {"filter gradient, normalized", Direction::kFilter, true, false, 0, 0},
};

int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  return count;
}

// A graph, and the bytes of each tensor that the caller provides.
class GraphOfForm {
 public:
  GraphOfForm(const Layer& layer, const Form& form, fe::DataType_t type)
      : layer_(layer), type_(type) {
    graph_.set_io_data_type(type)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (form.direction == Direction::kForward) AddForward(form);
    if (form.direction == Direction::kData) AddData(form);
    if (form.direction == Direction::kFilter) AddFilter(form);
  }

  Graph& graph() { return graph_; }
  const PlanTimer::TensorBytes& tensors() const { return tensors_; }

  // Lets cuDNN list its plans, for the GPU of the handle or, without one, for the described GPU.
  fe::error_t ListPlans(cudnnHandle_t handle,
                        const std::shared_ptr<const fe::DeviceProperties>& described) {
    constexpr int64_t kMuchScratch = int64_t{1} << 30;
    if (described != nullptr) graph_.set_device_properties(described);
    fe::error_t error = graph_.validate();
    if (error.is_good())
      error =
          handle == nullptr ? graph_.build_operation_graph() : graph_.build_operation_graph(handle);
    if (error.is_good())
      error = graph_.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (error.is_bad()) return error;
    graph_
        .deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC,
                                 fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
                                 fe::NumericalNote_t::DOWN_CONVERT_INPUTS})
        .deselect_workspace_greater_than(kMuchScratch);
    return graph_.check_support();
  }

 private:
  // Sets a number, a shape and a type, and remembers the size.
  void Set(Tensor_attributes& tensor, const Dims& dims, fe::DataType_t type) {
    const auto uid = static_cast<int64_t>(tensors_.size()) + 1;
    tensor.set_uid(uid)
        .set_dim(dims)
        .set_stride({dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]})
        .set_data_type(type);
    tensors_.emplace_back(uid, static_cast<size_t>(CountOf(dims)) * sizeof(float));  // at most
  }
  Tensor In(const Dims& dims) {
    Tensor_attributes tensor;
    Set(tensor, dims, type_);
    return graph_.tensor(tensor);
  }
  Tensor PerChannel(int64_t channels, fe::DataType_t type) {
    Tensor_attributes tensor;
    Set(tensor, {1, channels, 1, 1}, type);
    return graph_.tensor(tensor);
  }
  void Out(const Tensor& tensor, const Dims& dims, fe::DataType_t type) {
    Set(*tensor, dims, type);
    tensor->set_output(true);
  }
  Tensor Apply(const Tensor& a, const Tensor& b, fe::PointwiseMode_t mode) {
    return graph_.pointwise(a, b, Pointwise_attributes().set_mode(mode));
  }

  // relu(x * scale + bias)
  Tensor Normalized(const Tensor& x) {
    const Tensor scaled = Apply(x, PerChannel(layer_.channels, type_), fe::PointwiseMode_t::MUL);
    const Tensor shifted =
        Apply(scaled, PerChannel(layer_.channels, type_), fe::PointwiseMode_t::ADD);
    return graph_.pointwise(shifted,
                            Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
  }

  template <typename Attributes>
  Attributes Describe() const {
    const int64_t padding = (layer_.window - 1) / 2;
    return Attributes()
        .set_padding({padding, padding})
        .set_stride({layer_.stride, layer_.stride})
        .set_dilation({1, 1});
  }

  void AddForward(const Form& form) {
    Tensor x = In(layer_.x());
    if (form.normalizes) x = Normalized(x);
    const Tensor y =
        graph_.conv_fprop(x, In(layer_.w()), Describe<fe::graph::Conv_fprop_attributes>());
    Out(y, layer_.y(), type_);
    if (!form.sums) return;
    for (const Tensor& sum : graph_.genstats(y, fe::graph::Genstats_attributes()))
      Out(sum, {1, layer_.filters, 1, 1}, fe::DataType_t::FLOAT);
  }

  void AddData(const Form& form) {
    const Tensor dy = In(layer_.y());
    const Tensor dx =
        graph_.conv_dgrad(dy, In(layer_.w()), Describe<fe::graph::Conv_dgrad_attributes>());
    if (!form.sums) return Out(dx, layer_.x(), type_);
    dx->set_dim(layer_.x());
    const auto per_channel = [&] { return PerChannel(layer_.channels, fe::DataType_t::FLOAT); };
    const Tensor input = In(layer_.x());  // of the batch norm
    const Tensor mean = per_channel(), deviation = per_channel(), scale = per_channel();
    const Tensor centered = Apply(input, mean, fe::PointwiseMode_t::SUB);
    const Tensor unit = Apply(centered, deviation, fe::PointwiseMode_t::MUL);
    const Tensor scaled = Apply(unit, scale, fe::PointwiseMode_t::MUL);
    const Tensor rectified = Apply(scaled, per_channel(), fe::PointwiseMode_t::ADD);
    const Tensor masked = Apply(dx, rectified, fe::PointwiseMode_t::RELU_BWD);
    Out(masked, layer_.x(), type_);
    for (const Tensor& sum : graph_.dbn_weight(masked, input, mean, deviation, scale,
                                               fe::graph::DBN_weight_attributes()))
      Out(sum, {1, layer_.channels, 1, 1}, fe::DataType_t::FLOAT);
  }

  void AddFilter(const Form& form) {
    Tensor x = In(layer_.x());
    if (form.normalizes) x = Normalized(x);
    const Tensor dw =
        graph_.conv_wgrad(In(layer_.y()), x, Describe<fe::graph::Conv_wgrad_attributes>());
    Out(dw, layer_.w(), type_);
  }

  const Layer layer_;
  const fe::DataType_t type_;
  Graph graph_;
  PlanTimer::TensorBytes tensors_;
};

// Returns the milliseconds of a copy that reads and writes `bytes` bytes together.
float TimePass(size_t bytes, const cuda::Device& device) {
  constexpr int kRuns = 10;
  const DeviceMemory from = cuda::AllocateDevice(bytes / 2, device.stream);
  const DeviceMemory to = cuda::AllocateDevice(bytes / 2, device.stream);
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda::Check(cudaEventCreate(&begin), "cudaEventCreate");
  cuda::Check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = -1; i < kRuns; ++i) {  // the first one warms up
    if (i == 0) cuda::Check(cudaEventRecord(begin, device.stream), "cudaEventRecord");
    cuda::Check(
        cudaMemcpyAsync(to.get(), from.get(), bytes / 2, cudaMemcpyDeviceToDevice, device.stream),
        "cudaMemcpyAsync");
  }
  cuda::Check(cudaEventRecord(end, device.stream), "cudaEventRecord");
  cuda::Check(cudaEventSynchronize(end), "cudaEventSynchronize");
  float milliseconds = 0;
  cuda::Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds / kRuns;
}

std::string Describe(const Layer& layer) {
  return fmt::format("{}x{} stride {}, {:4} to {:4} channels, {}x{} pixels, {} times", layer.window,
                     layer.window, layer.stride, layer.channels, layer.filters, layer.size,
                     layer.size, layer.count);
}

struct FormTime {
  int64_t plans = 0;
  std::optional<float> milliseconds;
};

FormTime TimeForm(const Layer& layer, const Form& form, fe::DataType_t type,
                  const cuda::Device& device) {
  GraphOfForm built(layer, form, type);
  if (built.ListPlans(device.cudnn, nullptr).is_bad()) return {};
  FormTime time{.plans = built.graph().get_execution_plan_count(), .milliseconds = {}};
  PlanTimer timer(built.graph(), built.tensors(), device);
  float shortest = 0;
  const auto try_plan = [&](int64_t plan) {
    const cuda::PlanTrial trial = timer.Try(plan);
    if (trial.milliseconds && (shortest == 0 || *trial.milliseconds < shortest))
      shortest = *trial.milliseconds;
    return trial;
  };
  cuda::FindFastest(time.plans, try_plan, std::chrono::steady_clock::now);
  if (shortest > 0) time.milliseconds = shortest;
  return time;
}

// Times all forms of a layer and prints a row for each. `gains` adds up what each fused form gains
// over all layers of its kind in a step, if it is used where it is faster.
void TimeLayer(const Layer& layer, fe::DataType_t type, const cuda::Device& device,
               std::span<double> gains) {
  constexpr size_t kBytes = 2;  // of an activation
  float plain = 0;
  for (size_t i = 0; i < std::size(kForms); ++i) {
    const Form& form = kForms[i];
    const FormTime time = TimeForm(layer, form, type, device);
    std::string result =
        time.milliseconds ? fmt::format("{:.3f} ms", *time.milliseconds) : "no plan";
    if (!form.normalizes && !form.sums) {
      plain = time.milliseconds.value_or(0);
    } else if (time.milliseconds && plain > 0) {
      float passes = 0;
      if (form.passes_x > 0)
        passes += static_cast<float>(form.passes_x) * TimePass(CountOf(layer.x()) * kBytes, device);
      if (form.passes_y > 0)
        passes += static_cast<float>(form.passes_y) * TimePass(CountOf(layer.y()) * kBytes, device);
      const float gain = plain + passes - *time.milliseconds;
      gains[i] += std::max(0.0F, gain) * static_cast<float>(layer.count);
      result += fmt::format(", plain {:.3f} + passes {:.3f}: gain {:+.3f} ms", plain, passes, gain);
    }
    fmt::print("  {:<36} {:>3} plans, {}\n", form.name, time.plans, result);
  }
  std::fflush(stdout);
}

constexpr std::pair<std::string_view, fe::DataType_t> kTypes[] = {
    {"fp16", fe::DataType_t::HALF}, {"bf16", fe::DataType_t::BFLOAT16}};

// Makes the stream and the handle of GPU 0. They live as long as the process.
cuda::Device MakeDevice() {
  cuda::Device device;
  cuda::Check(cudaStreamCreate(&device.stream), "cudaStreamCreate");
  if (cudnnCreate(&device.cudnn) != CUDNN_STATUS_SUCCESS ||
      cudnnSetStream(device.cudnn, device.stream) != CUDNN_STATUS_SUCCESS)
    throw DeviceError("[cudnn] cudnnCreate: failed");
  return device;
}

void TimeAll(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const cuda::Device device = MakeDevice();
  std::array<std::array<double, std::size(kForms)>, std::size(kTypes)> gains{};
  size_t num_timed = 0;
  for (const Layer& layer : kLayers) {
    const std::chrono::duration<double> spent = Clock::now() - start;
    if (spent.count() > seconds) break;
    for (size_t type = 0; type < std::size(kTypes); ++type) {
      fmt::print("{}, {}\n", kTypes[type].first, Describe(layer));
      TimeLayer(layer, kTypes[type].second, device, gains[type]);
    }
    ++num_timed;
  }
  for (size_t type = 0; type < std::size(kTypes); ++type) {
    for (size_t i = 0; i < std::size(kForms); ++i) {
      if (kForms[i].sums || kForms[i].normalizes)
        fmt::print("{}, {}: gains {:.2f} ms in a step of {} images\n", kTypes[type].first,
                   kForms[i].name, gains[type][i], Layer::kBatch);
    }
  }
  fmt::print("{} of {} layers were timed\n", num_timed, std::size(kLayers));
}

// Prints how many plans cuDNN offers for each form, summed over all layers, and for how many layers
// it has none.
void PrintPlans() {
  const auto described = std::make_shared<fe::DeviceProperties>();
  constexpr std::string_view kGpu = testing::kDescribedH200;
  if (fe::error_t error = described->deserialize({kGpu.begin(), kGpu.end()}); error.is_bad())
    throw DeviceError("[cudnn] the description of the GPU: " + error.get_message());
  for (const auto& [name, type] : kTypes) {
    for (const Form& form : kForms) {
      int64_t fewest = INT64_MAX, most = 0, layers = 0;
      std::string problem;
      for (const Layer& layer : kLayers) {
        GraphOfForm built(layer, form, type);
        fe::error_t error = built.ListPlans(nullptr, described);
        const int64_t plans = error.is_good() ? built.graph().get_execution_plan_count() : 0;
        const std::string message = error.get_message();
        if (error.is_bad()) problem = message.substr(0, message.find('\n'));
        fewest = std::min(fewest, plans);
        most = std::max(most, plans);
        layers += plans > 0 ? 1 : 0;
      }
      fmt::print("{}  {:<36} {} of {} layers, {} to {} plans{}\n", name, form.name, layers,
                 std::size(kLayers), fewest, most, layers > 0 ? "" : ": " + problem);
    }
  }
}

}  // namespace
}  // namespace carole::bench

int main(int argc, char** argv) {
  try {
    const std::string_view word = argc > 1 ? argv[1] : "110";
    if (word == "plans") {
      carole::bench::PrintPlans();
    } else {
      carole::bench::TimeAll(std::atof(word.data()));
    }
    return 0;
  } catch (const carole::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
