// Measures how close the CUDA backend's own kernels come to the memory bandwidth. At best, a kernel
// reads its inputs and writes its outputs once. Its GB/s by this measure are compared with those of
// a plain copy. The test prints the results. It fails only if a kernel takes a hundred times as
// long as such a copy, since smaller losses depend on the GPU.
//
//   build/tests/carole_backend_tests --gtest_filter='KernelSpeed.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "src/backend/arena_math.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/gelu.h"
#include "src/backend/ops/lrn.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/silu.h"
#include "src/backend/optimizers/optimizers.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

struct SpeedCase {
  std::string name;
  OpSpec spec;
};

// The bytes of all inputs and outputs.
double IdealBytes(const OpSpec& spec) {
  double bytes = 0;
  for (const auto* tensors : {&spec.inputs, &spec.outputs}) {
    for (const TensorSpec& t : *tensors)
      if (t.present) bytes += static_cast<double>(ByteSize(t.shape, t.dtype, t.layout));
  }
  return bytes;
}

void AddBatchNorms(int64_t n, std::vector<SpeedCase>& cases) {
  const struct {
    std::string name;
    Shape x;
    bool residual;
  } rows[] = {{"64x112x112", {n, 64, 112, 112}, false},
              {"256x56x56 residual", {n, 256, 56, 56}, true},
              {"512x14x14", {n, 512, 14, 14}, false},
              {"2048x7x7 residual", {n, 2048, 7, 7}, true},
              {"144x56x56", {n, 144, 56, 56}, false}};
  for (const auto& [name, x, residual] : rows) {
    const BatchNormSizes sizes{
        .x = x, .residual = residual, .attributes = {.relu = true}, .relu_bitmask = residual};
    cases.push_back({"batch_norm " + name, BatchNormSpec(sizes)});
    cases.push_back({"batch_norm_backward " + name, BatchNormBackwardSpec(sizes)});
  }
}

// The first layers of VGG, ResNet and Inception.
void AddFirstLayers(int64_t n, std::vector<SpeedCase>& cases) {
  ConvSizes vgg = VggStem(n);
  vgg.bias = true;
  const std::pair<std::string, ConvSizes> rows[] = {{"3x3 3x224x224", vgg},
                                                    {"7x7/2 3x224x224", ResNetStem(n)},
                                                    {"3x3/2 3x299x299", InceptionStem(n)}};
  for (const auto& [name, sizes] : rows) {
    cases.push_back({"conv2d " + name, Conv2dSpec(sizes)});
    cases.push_back({"conv2d_backward_filter " + name, Conv2dBackwardFilterSpec(sizes)});
    if (!sizes.bias) continue;
    ConvSizes masked = sizes;
    masked.relu_mask = true;
    cases.push_back({"conv2d_backward_filter masked " + name, Conv2dBackwardFilterSpec(masked)});
  }
}

void AddWindows(int64_t n, std::vector<SpeedCase>& cases) {
  for (const int64_t size : {3, 5}) {
    const int64_t around = size / 2;
    const ConvSizes conv =
        Conv({n, 144, 56, 56}, 144, size, {.padding = Around(around), .groups = 144});
    const std::string name = fmt::format(" {0}x{0} 144x56x56", size);
    cases.push_back({"depthwise" + name, Conv2dSpec(conv)});
    cases.push_back({"depthwise_backward_data" + name, Conv2dBackwardDataSpec(conv)});
    cases.push_back({"depthwise_backward_filter" + name, Conv2dBackwardFilterSpec(conv)});
  }
  const PoolSizes max{{n, 64, 112, 112}, {.window_h = 3, .window_w = 3, .padding = {0, 0, 1, 1}}};
  const PoolSizes maxima{{n, 64, 224, 224}, {}};
  const auto kAverage = Pool2dAttributes::Mode::kAverage;
  const PoolSizes average{{n, 2048, 7, 7}, {.mode = kAverage, .window_h = 7, .window_w = 7}};
  const PoolSizes averages{{n, 192, 17, 17},
                           {.mode = kAverage,
                            .window_h = 3,
                            .window_w = 3,
                            .stride_h = 1,
                            .stride_w = 1,
                            .padding = {1, 1, 1, 1}}};
  for (const auto& [name, sizes] : {std::pair(" 3x3/2 64x112x112", max),
                                    {" 2x2/2 64x224x224", maxima},
                                    {" 2048x7x7", average},
                                    {" 3x3/1 192x17x17", averages}}) {
    const std::string kind = sizes.is_max() ? "max_pool" : "average_pool";
    cases.push_back({kind + name, Pool2dSpec(sizes)});
    cases.push_back({kind + "_backward" + name, Pool2dBackwardSpec(sizes)});
  }
}

void AddOthers(int64_t n, std::vector<SpeedCase>& cases) {
  const Shape map{n, 256, 56, 56};
  const auto add = [&](const std::string& name, const OpSpec& spec) {
    cases.push_back({name, spec});
  };
  add("add2 256x56x56", SameShapeSpec(op::kAdd, {}, map, 2));
  OpSpec relu_backward = SameShapeSpec(op::kReluBackward, ReluAttributes{}, map, 2);
  add("relu_backward 256x56x56", relu_backward);
  relu_backward.outputs.push_back(PlainSpec({map[1]}));
  add("relu_backward and bias 256x56x56", relu_backward);
  add("lrn 64x55x55", SameShapeSpec(op::kLrn, LrnAttributes{}, {n, 64, 55, 55}, 1));
  add("lrn_backward 64x55x55",
      SameShapeSpec(op::kLrnBackward, LrnAttributes{}, {n, 64, 55, 55}, 2));
  add("dropout 4096x49", SameShapeSpec(op::kDropout, DropoutAttributes{}, {n, 4096 * 49}, 1));
  add("concat 64+64+96+64x35x35", ConcatSpec({n, 0, 35, 35}, {64, 64, 96, 64}));
  add("scale_channels 144x56x56", ScaleChannelsSpec({n, 144, 56, 56}));
  add("scale_channels_backward 144x56x56", ScaleChannelsBackwardSpec({n, 144, 56, 56}));
  add("layer_norm 96x56x56", LayerNormSpec({{n, 96, 56, 56}}));
  add("layer_norm_backward 96x56x56", LayerNormBackwardSpec({{n, 96, 56, 56}}));
  add("layer_norm 768x7x7", LayerNormSpec({{n, 768, 7, 7}}));
  add("layer_norm_backward 768x7x7", LayerNormBackwardSpec({{n, 768, 7, 7}}));
  add("gelu 384x56x56", SameShapeSpec(op::kGelu, GeluAttributes{}, {n, 384, 56, 56}, 1));
  add("gelu_backward 384x56x56",
      SameShapeSpec(op::kGeluBackward, GeluAttributes{}, {n, 384, 56, 56}, 2));
  add("silu 144x56x56", SameShapeSpec(op::kSilu, {}, {n, 144, 56, 56}, 1));
  add("cross_entropy 1000", CrossEntropySpec(n, 1000, {}));
}

// Kernels of quantized nets, in fp32.
void AddQuantization(int64_t n, std::vector<SpeedCase>& cases) {
  using Range = FakeQuantAttributes::Range;
  const TensorSpec map = PlainSpec({n, 64, 112, 112});
  cases.push_back({"fake_quant 64x112x112", FakeQuantSpec(map, {})});
  cases.push_back(
      {"fake_quant average 64x112x112", FakeQuantSpec(map, {.range = Range::kAverage})});
  cases.push_back({"fake_quant_backward 64x112x112", FakeQuantBackwardSpec(map, {})});
  const FoldedBatchNormSizes norm{.c = map.shape};
  cases.push_back({"folded_batch_norm 64x112x112", FoldedBatchNormSpec(norm)});
  cases.push_back({"folded_batch_norm_backward 64x112x112", FoldedBatchNormBackwardSpec(norm)});
}

std::vector<SpeedCase> SpeedCases(int64_t batch) {
  std::vector<SpeedCase> cases;
  AddBatchNorms(batch, cases);
  AddFirstLayers(batch, cases);
  AddWindows(batch, cases);
  AddOthers(batch, cases);
  for (SpeedCase& c : cases) c.spec = InNarrow(c.spec, DType::kBF16);
  AddQuantization(batch, cases);
  const TensorSpec wide = PlainSpec({batch, 100'000});
  const TensorSpec narrow = PlainSpec(wide.shape, DType::kBF16);
  cases.push_back({"cast fp32 to bf16", {op::kReorder, {}, {wide}, {narrow}}});
  constexpr size_t kTensors = 100;
  const TensorSpec wide_part = PlainSpec({batch, 1000});
  const TensorSpec narrow_part = PlainSpec(wide_part.shape, DType::kBF16);
  cases.push_back({"casts of 100 tensors",
                   {op::kCasts,
                    {},
                    std::vector<TensorSpec>(kTensors, wide_part),
                    std::vector<TensorSpec>(kTensors, narrow_part)}});
  OpSpec pixels = NormalizeSpec({batch, 3, 224, 224}, {});
  pixels.outputs[0].dtype = DType::kBF16;
  cases.push_back({"normalize 3x224x224", pixels});
  return cases;
}

// The time of one call of `work`, in seconds. If the backend can capture work, several calls are
// replayed at once, so that launches cost nothing.
double Seconds(const Backend& backend, const std::function<void()>& work) {
  constexpr int kRuns = 10;
  const auto run_all = [&] {
    for (int i = 0; i < kRuns; ++i) work();
  };
  work();
  const std::unique_ptr<CapturedWork> captured = backend.Capture(run_all);
  const std::function<void()> launch =
      captured == nullptr ? std::function<void()>(run_all) : [&] { captured->Replay(); };
  launch();
  backend.Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  launch();
  backend.Synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kRuns;
}

double SecondsOf(const Backend& backend, const OpSpec& spec) {
  const std::unique_ptr<Kernel> kernel = backend.MakeKernel(spec);
  std::vector<DeviceMemory> owners;
  const auto allocate = [&](const TensorSpec& t, const Layout& layout) -> Tensor {
    if (!t.present) return {};
    owners.push_back(backend.Allocate(ByteSize(t.shape, t.dtype, layout)));
    return {owners.back().get(), t.shape, t.dtype, layout};
  };
  KernelMemory memory;
  for (size_t i = 0; i < spec.inputs.size(); ++i)
    memory.inputs.push_back(allocate(spec.inputs[i], kernel->input_layouts()[i]));
  for (size_t o = 0; o < spec.outputs.size(); ++o)
    memory.outputs.push_back(allocate(spec.outputs[o], kernel->output_layouts()[o]));
  owners.push_back(backend.Allocate(kernel->workspace_bytes()));
  memory.workspace = owners.back().get();
  kernel->Bind(memory);
  backend.BeginRun({});
  return Seconds(backend, [&] { kernel->Run({}); });
}

// The speed of a copy in GB/s, counting read and written bytes.
double CopySpeed(const Backend& backend, size_t bytes) {
  const DeviceMemory from = backend.Allocate(bytes), to = backend.Allocate(bytes);
  const double seconds =
      Seconds(backend, [&] { backend.arena_math().Copy(to.get(), from.get(), bytes); });
  return 2e-9 * static_cast<double>(bytes) / seconds;
}

// The time of one momentum step with L2 over `count` weights. It reads and writes weights and
// slots, reads gradients and writes 16-bit copies.
double SecondsOfUpdate(const Backend& backend, int64_t count) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(count);
  const DeviceMemory w = backend.Allocate(bytes), g = backend.Allocate(bytes),
                     slot = backend.Allocate(bytes), copy = backend.Allocate(bytes / 2);
  const OptimizerOptions options{.weight_decay = 1e-4};
  const std::unique_ptr<Updater> updater =
      backend.arena_math().MakeUpdater({.rule = RuleNumber<optimizers::Momentum>(),
                                        .options = &options,
                                        .weights = w.get(),
                                        .gradients = g.get(),
                                        .slots = {slot.get()},
                                        .count = count,
                                        .segments = {{{0, count}}},
                                        .copies = {{{0, count}, DType::kBF16, copy.get()}}});
  updater->BeginStep({.learning_rate = 0.1}, false);
  return Seconds(backend, [&] { updater->Update(); });
}

void PrintTable(const Backend& backend, int64_t batch, size_t copied_bytes, int64_t weights) {
  const double copy = CopySpeed(backend, copied_bytes);
  fmt::print("{:<45} {:>9} {:>8} {:>7} {:>5}\n", "bf16, batch " + std::to_string(batch), "MB", "us",
             "GB/s", "share");
  const auto print = [&](const std::string& name, double bytes, double seconds) {
    const double speed = 1e-9 * bytes / seconds;
    EXPECT_GT(speed, 0.01 * copy) << name;
    fmt::print("{:<45} {:>9.1f} {:>8.1f} {:>7.0f} {:>5.2f}\n", name, 1e-6 * bytes, 1e6 * seconds,
               speed, speed / copy);
  };
  const auto copied = static_cast<double>(2 * copied_bytes);
  print("copy", copied, 1e-9 * copied / copy);
  for (const SpeedCase& c : SpeedCases(batch))
    print(c.name, IdealBytes(c.spec), SecondsOf(backend, c.spec));
  print("momentum, L2, copies", 22 * static_cast<double>(weights),
        SecondsOfUpdate(backend, weights));
}

TEST(KernelSpeed, ComparedWithACopy) {
  if (const std::string problem = GpuUnavailableReason(); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  PrintTable(*MakeCudaBackend({}), 256, size_t{1} << 30, 25'600'000);
}

TEST(KernelSpeed, IdealBytesCountAllInputsAndOutputs) {
  const OpSpec relu = SameShapeSpec(op::kRelu, ReluAttributes{}, {2, 8, 3, 5}, 1);
  EXPECT_EQ(IdealBytes(relu), 2 * 240 * sizeof(float));
  EXPECT_EQ(IdealBytes(InNarrow(relu, DType::kBF16)), 2 * 240 * 2);
  const OpSpec batch_norm = BatchNormSpec({.x = {2, 8, 3, 5}, .beta = false});
  EXPECT_EQ(IdealBytes(batch_norm), sizeof(float) * (2 * 240 + 5 * 8)) << "gamma, 4 statistics";
}

TEST(KernelSpeed, RunsOnTheEmulatedGpu) {
  const auto backend = MakeEmulatedCudaBackend(1);
  for (const SpeedCase& c : SpeedCases(1)) {
    EXPECT_GT(IdealBytes(c.spec), 0) << c.name;
    EXPECT_TRUE(backend->Supports(c.spec)) << c.name;
  }
  EXPECT_GT(CopySpeed(*backend, 1 << 16), 0);
  EXPECT_GT(SecondsOfUpdate(*backend, 5000), 0);
  EXPECT_GT(SecondsOf(*backend, CrossEntropySpec(2, 10, {})), 0);
}

}  // namespace
}  // namespace carole::testing
