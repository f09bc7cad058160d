// Runs one list of cases (conformance_cases.h) on every backend and compares the results with those
// of the reference backend in double. Each case is run
//   * in fp32, and in the other precisions that the backend supports;
//   * with plain layouts, and with the layouts that the backend's own convolutions produce;
//   * in place too, if the kernel allows it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/softmax.h"
#include "src/core/hash.h"
#include "src/core/simd.h"
#include "tests/backend/conformance_cases.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_runner.h"
#include "tests/support/precision_problem.h"

namespace carole::testing {
namespace {

constexpr auto kIn = kPosition<BatchNormBackwardInputs>;
constexpr auto kOut = kPosition<BatchNormBackwardOutputs>;

constexpr int kThreads = 2;

// The tolerance is kRoundingsBase + kRoundingsPerRoot * sqrt(terms) roundings of fp32, relative to
// the largest element. Rounding errors of a sum of `terms` numbers grow like a random walk, in any
// order.
constexpr double kRounding = 0x1p-24;
constexpr double kRoundingsBase = 8;
constexpr double kRoundingsPerRoot = 4;

// Results that are stored in 16 bits are sometimes rounded several times while they are summed
// (sums of three, gradients of overlapping pool windows). The summands may be larger than the sum.
constexpr double kNarrowRoundings = 4;

double RoundingOf(DType stored) {
  return stored == DType::kBF16 ? 0x1p-9 : stored == DType::kF16 ? 0x1p-12 : 0;
}

double Tolerance(double terms, const Elements& want, double rounding) {
  double largest = 0;
  for (double v : want) largest = std::max(largest, std::abs(v));
  return (kNarrowRoundings * rounding +
          kRounding * (kRoundingsBase + kRoundingsPerRoot * std::sqrt(terms))) *
         largest;
}

void ExpectWithin(double tolerance, const std::string& what, const Elements& got,
                  const Elements& want) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance)  // false for NaN
        << what << ": element " << i << " of " << got.size() << ": got " << got[i] << ", want "
        << want[i] << " within " << tolerance;
  }
}

void ExpectClose(const std::string& what, const Elements& got, const Elements& want, double terms,
                 double rounding = 0) {
  ExpectWithin(Tolerance(terms, want, rounding), what, got, want);
}

// Compares db, which is the sum of dx over pixels. The errors of dx add up like a random walk.
void ExpectSumsClose(const Elements& db, const std::vector<Elements>& want, double terms,
                     double rounding) {
  constexpr auto kDataOut = kPosition<Conv2dBackwardDataOutputs>;
  if (db.empty() && want[kDataOut.db].empty()) return;
  const Elements& dx = want[kDataOut.dx];
  const auto pixels = static_cast<double>(dx.size() / want[kDataOut.db].size());
  ExpectWithin(Tolerance(terms, dx, rounding) * std::sqrt(pixels), "db", db, want[kDataOut.db]);
}

void ExpectSameZeros(const Elements& got, const Elements& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i] == 0, want[i] == 0) << "another dropout mask at element " << i;
  }
}

const Backend& Oracle() {
  static const std::unique_ptr<Backend> backend = MakeReferenceBackend(kThreads);
  return *backend;
}

Elements Rounded(Elements values) {
  for (double& v : values) v = static_cast<float>(v);
  return values;
}

// Rounds the inputs to numbers that their types can hold.
void RoundTo(const OpSpec& spec, std::vector<Elements>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (double& v : inputs[i]) {
      const auto wide = static_cast<float>(v);
      if (spec.inputs[i].dtype == DType::kBF16) v = static_cast<float>(Bf16(wide));
      if (spec.inputs[i].dtype == DType::kF16) v = static_cast<float>(Fp16(wide));
    }
  }
}

OpSpec InType(const OpSpec& spec, DType type) {
  return type == DType::kF64 ? InDouble(spec) : IsNarrow(type) ? InNarrow(spec, type) : spec;
}

// Computes the inputs that come from the forward pass of the same x: statistics, and y or its mask.
void PrepareBatchNormBackward(const ConformanceCase& c, std::vector<Elements>& inputs) {
  const auto& specs = c.spec.inputs;
  const OpSpec forward =
      InDouble(BatchNormSpec({.x = specs[kIn.x].shape,
                              .gamma = specs[kIn.gamma].present,
                              .beta = specs[kIn.beta].present,
                              .residual = c.spec.outputs[kOut.dresidual].present,
                              .attributes = c.spec.attributes.as<BatchNormAttributes>(),
                              .relu_bitmask = HasReluBitmask(c.spec)}));
  const Elements ones(specs[kIn.mean].shape.size(), 1.0);
  Elements residual;
  if (forward.inputs[kPosition<BatchNormInputs>.residual].present) {
    residual = inputs[kIn.dy];
    residual.resize(inputs[kIn.x].size());  // if x is a slice, dy has more elements
  }
  const auto outputs = RunPlain(
      Oracle(), forward, {inputs[kIn.x], inputs[kIn.gamma], inputs[kIn.beta], residual, ones, ones},
      c.context);
  if (specs[kIn.y].present) inputs[kIn.y] = Rounded(outputs[kPosition<BatchNormOutputs>.y]);
  if (HasReluBitmask(c.spec))
    inputs[kIn.relu_bitmask] = outputs[kPosition<BatchNormOutputs>.relu_bitmask];
  inputs[kIn.mean] = Rounded(outputs[kPosition<BatchNormOutputs>.mean]);
  inputs[kIn.rstd] = Rounded(outputs[kPosition<BatchNormOutputs>.rstd]);
}

// Changes the random inputs of some operations to values that can occur.
void PrepareInputs(const ConformanceCase& c, std::vector<Elements>& inputs) {
  const OpKind kind = c.spec.kind;
  const auto change = [&](size_t input, auto f) {
    for (double& v : inputs[input]) v = f(v);
  };
  const auto times4 = [](double v) { return 4 * v; };
  if (kind == op::kBatchNorm) {
    change(kPosition<BatchNormInputs>.moving_variance, [](double v) { return std::abs(v) + 0.5; });
  } else if (kind == op::kBatchNormBackward) {
    PrepareBatchNormBackward(c, inputs);
  } else if (kind == op::kRelu || kind == op::kHardActivation) {
    change(0, times4);  // some are outside of the activation's corners
  } else if (kind == op::kHardActivationBackward) {
    change(1, times4);
  } else if (HasReluYInput(c.spec)) {
    static_assert(kPosition<Conv2dBackwardDataInputs>.relu_y ==
                  kPosition<FilterGradientInputs>.relu_y);
    change(kPosition<FilterGradientInputs>.relu_y, [](double v) { return std::max(v, 0.0); });
  } else if (kind == op::kReluBackward) {
    const double ceiling = c.spec.attributes.as<ReluAttributes>().ceiling;
    change(kPosition<ReluBackwardInputs>.y,
           [=](double v) { return std::clamp(4 * v, 0.0, ceiling > 0 ? ceiling : 100.0); });
  } else if (kind == op::kPool2d) {
    change(0, [](double v) { return std::round(2 * v); });  // ties: the first largest must win
  } else if (kind == op::kNormalize) {
    change(0, [](double v) { return std::clamp(std::round(128 + 70 * v), 0.0, 255.0); });
  } else if (kind == op::kSoftmaxCrossEntropy) {
    const int64_t k = c.spec.inputs[0].shape[1];
    const bool is_soft = c.spec.inputs[1].shape.rank() == 2;
    if (is_soft) std::ranges::fill(inputs[1], 0);
    for (size_t i = 0; i < inputs[2].size(); ++i) {
      inputs[2][i] = i % 3 == 1 ? 0 : 1 + 0.5 * (i % 2);
      if (!is_soft) {
        inputs[1][i] = i % 3 == 1 ? -1 : static_cast<double>(7 * i % k);
      } else if (i % 3 == 1) {
        inputs[1][i * k] = NAN;
      } else {  // 0.75 for one class, 0.25 for another
        inputs[1][i * k + 7 * i % k] = 0.75;
        inputs[1][i * k + (7 * i + 3) % k] = 0.25;
      }
    }
  }
}

// Makes the inputs of a case, in numbers that `type` can hold.
std::vector<Elements> CaseInputs(const ConformanceCase& c, DType type) {
  std::vector<Elements> inputs;
  for (const TensorSpec& t : c.spec.inputs) {
    inputs.push_back(t.present ? RandomElements(t.shape.size(), Fnv1a64(c.name) + inputs.size())
                               : Elements());
  }
  const OpSpec spec = InType(c.spec, type);
  RoundTo(spec, inputs);
  PrepareInputs(c, inputs);
  RoundTo(spec, inputs);
  return inputs;
}

// The layout of activations that this backend's convolutions produce.
Layout ConvolutionLayout(const Backend& backend, const Shape& shape, DType type = DType::kF32) {
  const OpSpec plain = Conv2dSpec(Conv(shape, shape[1], 1));
  OpSpec spec = InType(plain, type);
  if (!backend.Supports(spec)) return Layout::PlainActivation(shape);
  for (auto* tensors : {&spec.inputs, &spec.outputs}) {
    for (TensorSpec& t : *tensors) t.layout = Layout::Any();
  }
  return backend.MakeKernel(spec)->output_layouts()[0];
}

// Changes the layouts of a plain spec to those that an Executable would ask for. The kernel chooses
// the layouts of outputs. With `native`, inputs have the backend's own layouts.
OpSpec SpecForPlan(const Backend& backend, OpSpec spec, bool native) {
  if (spec.kind == op::kReorder) return spec;
  for (TensorSpec& t : spec.outputs) t.layout = Layout::Any();
  for (TensorSpec& t : spec.inputs) {
    if (!native || !t.present || t.dtype == DType::kF64 || t.dtype == DType::kI32 ||
        t.dtype == DType::kU8)
      continue;
    if (t.layout == Layout::Filter()) t.layout = Layout::Any();
    if (t.layout == Layout::Nhwc()) t.layout = ConvolutionLayout(backend, t.shape, t.dtype);
  }
  return spec;
}

// Runs the forward pass of a pool and returns its argmax, which only this backend's backward can
// read.
GuardedTensor RunForArgmax(const Backend& backend, const OpSpec& backward, DType dtype,
                           bool native) {
  OpSpec forward =
      Pool2dSpec({backward.outputs[0].shape, backward.attributes.as<Pool2dAttributes>()});
  forward = InType(forward, dtype);
  Elements x = RandomElements(forward.inputs[0].shape.size(), 1);
  for (double& v : x) v = std::round(2 * v);
  OpRun run(backend, SpecForPlan(backend, forward, native), MakeInputs(forward, {x}));
  run.Run({});
  return std::move(run.output(1));
}

// If the backend can write a filter gradient in 16 bits, returns the spec for that, as the compiler
// does (src/graph/compiler.cpp: UseNarrowFilterGradient()).
OpSpec WithNarrowFilterGradient(const Backend& backend, OpSpec spec) {
  if (!backend.has_own_memory() || spec.kind != op::kConv2dBackwardFilter) return spec;
  OpSpec rounded = spec;
  rounded.outputs[0].dtype = spec.inputs[0].dtype;
  return backend.Supports(rounded) ? rounded : spec;
}

struct Results {
  std::vector<Elements> outputs;
  std::vector<Elements> inputs;  // after the run
};

// Runs the case and returns the results in plain layouts.
Results RunCase(const Backend& backend, const ConformanceCase& c, DType dtype,
                const std::vector<Elements>& elements, bool native, bool in_place) {
  const OpSpec plain = WithNarrowFilterGradient(backend, InType(c.spec, dtype));
  OpSpec spec = SpecForPlan(backend, plain, native);
  std::vector<GuardedTensor> inputs = MakeInputs(plain, elements);
  const bool needs_argmax = spec.kind == op::kPool2dBackward && spec.inputs[1].present;
  if (needs_argmax) {
    inputs[1] = RunForArgmax(backend, c.spec, dtype, native);
    spec.inputs[1].layout = inputs[1].layout();
  }
  OpRun run(backend, spec, inputs, in_place);
  run.Run(c.context);
  Results results;
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    const bool skip = !plain.outputs[i].present || plain.outputs[i].dtype == DType::kI32;
    results.outputs.push_back(
        skip ? Elements() : Reordered(backend, run.output(i), plain.outputs[i].layout).Read());
  }
  for (size_t i = 0; i < plain.inputs.size(); ++i) {
    const bool state = IsState(plain, i);
    results.inputs.push_back(state ? run.input(i).Read() : Elements());
  }
  return results;
}

bool IsProduct(OpKind kind) {
  return IsFilterInput(kind, 1) || kind == op::kConv2dBackwardFilter ||
         kind == op::kLinearBackwardFilter;
}

// The rounding error of output `o` in addition to that of fp32.
double RoundingOf(const ConformanceCase& c, Precision precision, bool may_round_dw, size_t o) {
  const DType type = ActivationType(precision);
  if (precision == Precision::kTf32 && IsProduct(c.spec.kind)) return 0x1p-11;
  if (may_round_dw && o == 0 && c.spec.kind == op::kConv2dBackwardFilter) return RoundingOf(type);
  if (c.spec.kind == op::kConv2dBackwardData) return RoundingOf(type);
  return RoundingOf(InType(c.spec, type).outputs[o].dtype);
}

void ExpectConforms(const ConformanceCase& c, Precision precision, bool may_round_dw,
                    const Results& got, const Results& want) {
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    const double rounding = RoundingOf(c, precision, may_round_dw, i);
    if (c.spec.kind == op::kConv2dBackwardData && i == kPosition<Conv2dBackwardDataOutputs>.db) {
      ExpectSumsClose(got.outputs[i], want.outputs, c.terms, rounding);
    } else {
      ExpectClose("output " + std::to_string(i), got.outputs[i], want.outputs[i], c.terms,
                  rounding);
    }
  }
  for (size_t i = 0; i < want.inputs.size(); ++i) {
    ExpectClose("state " + std::to_string(i), got.inputs[i], want.inputs[i], c.terms);
  }
  if (c.spec.kind == op::kDropout || c.spec.kind == op::kDropoutBackward) {
    ExpectSameZeros(got.outputs[0], want.outputs[0]);
  }
}

struct TestedBackend {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(int threads);
  std::string (*unavailable_reason)();           // empty if the backend can be used here
  std::vector<Precision> other_precisions = {};  // other than fp32, if the machine has them
  // Whether gradients of filters may be rounded to 16 bits before they are converted to fp32.
  bool may_round_dw = false;
};
const TestedBackend kTested[] = {
    {"onednn",
     MakeOneDnnBackend,
     [] { return std::string(OneDnnAvailable() ? "" : "not built in"); },
     {Precision::kBf16}},
    {"reference", MakeReferenceBackend, [] { return std::string(); }, {Precision::kBf16}},
    {"emulated_cuda",
     MakeEmulatedCudaBackend,
     [] { return std::string(); },
     {Precision::kTf32, Precision::kBf16, Precision::kFp16},
     true},
    {"cuda",
     [](int) { return MakeCudaBackend({}); },
     GpuUnavailableReason,
     {Precision::kTf32, Precision::kBf16, Precision::kFp16},
     true},
};

void PrintTo(const TestedBackend& backend, std::ostream* out) { *out << backend.name; }

class Conformance : public ::testing::TestWithParam<std::tuple<TestedBackend, ConformanceCase>> {};

void ExpectConformsIn(Precision precision, const Backend& backend, const ConformanceCase& c,
                      bool may_round_dw) {
  SCOPED_TRACE(Name(precision));
  const DType type = ActivationType(precision);
  const std::vector<Elements> inputs = CaseInputs(c, type);
  const Results want = RunCase(Oracle(), c, DType::kF64, inputs, false, false);
  const OpSpec plain = InType(c.spec, type);
  for (const bool native : {false, true}) {
    SCOPED_TRACE(native ? "the backend's own layouts" : "plain layouts");
    ExpectConforms(c, precision, may_round_dw, RunCase(backend, c, type, inputs, native, false),
                   want);
    const OpSpec spec = SpecForPlan(backend, plain, native);
    if (!OpRun(backend, spec, MakeInputs(plain, inputs)).CanRunInPlace()) continue;
    SCOPED_TRACE("in place");
    ExpectConforms(c, precision, may_round_dw, RunCase(backend, c, type, inputs, native, true),
                   want);
  }
}

TEST_P(Conformance, MatchesReferenceInDouble) {
  const auto& [entry, c] = GetParam();
  if (const std::string problem = entry.unavailable_reason(); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  const auto backend = entry.make(kThreads);
  const UseMemoryOf memory(*backend);
  const OpSpec narrow = InType(c.spec, DType::kBF16);
  const bool has_narrow = c.spec.kind != op::kReorder &&
                          (IsNarrow(narrow.inputs[0].dtype) || IsNarrow(narrow.outputs[0].dtype));
  const bool in_fp32 = backend->Supports(c.spec);
  if (!in_fp32 && !(has_narrow && backend->Supports(narrow)))
    GTEST_SKIP() << entry.name << " does not support " << c.name;
  if (in_fp32) ExpectConformsIn(Precision::kFp32, *backend, c, entry.may_round_dw);
  if (!has_narrow) return;
  for (const Precision precision : entry.other_precisions) {
    // For other operations, TF32 is the same as fp32.
    if (precision == Precision::kTf32 && !(IsProduct(c.spec.kind) && in_fp32)) continue;
    const std::string problem = PrecisionProblem(precision, *backend);
    if (!problem.empty()) GTEST_SKIP() << "skipped: " << problem;
    EXPECT_TRUE(backend->Supports(InType(c.spec, ActivationType(precision)))) << Name(precision);
    ExpectConformsIn(precision, *backend, c, entry.may_round_dw);
  }
}

// Tests the CUDA kernels that are used only if timing shows that they are faster: convolutions with
// pairs of outputs, or with a fused mask.
const TestedBackend kOptionalKernels[] = {
    {"emulated_cuda_optional",
     [](int) { return MakeEmulatedCudaBackend({.force_optional_kernels = true}); },
     [] { return std::string(); },
     {Precision::kBf16, Precision::kFp16},
     true},
    {"cuda_optional",
     [](int) { return MakeCudaBackend({.force_optional_kernels = true}); },
     GpuUnavailableReason,
     {Precision::kBf16, Precision::kFp16},
     true},
};

std::vector<ConformanceCase> CasesWithOptionalKernels() {
  using Task = cuda::ConvolutionTask;
  std::vector<ConformanceCase> cases = ConformanceCases();
  std::erase_if(cases, [](const ConformanceCase& c) {
    if (!c.name.starts_with("conv2d")) return true;
    const Task task = Task::Of(InType(c.spec, DType::kBF16)).ForLibrary(false);
    return !task.mask && !task.CanPairOutputs();
  });
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Conformance::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(OptionalKernels, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kOptionalKernels),
                                            ::testing::ValuesIn(CasesWithOptionalKernels())),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Backends, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kTested),
                                            ::testing::ValuesIn(ConformanceCases())),
                         NameOf);

// Winograd's algorithm is used for the cases with "_tiles" in their name, unless it is forbidden.
// It conforms on any number of threads, even if there are more threads than rows of tiles.
TEST(Winograd, ConformsOnAnyNumberOfThreads) {
  if (!OneDnnAvailable() || SimdLevel() < 3) GTEST_SKIP() << "skipped: oneDNN or AVX2 is missing";
  // Winograd's kernels read plain filters; oneDNN's own kernels read filters in blocks.
  const auto uses_winograd = [](const Backend& backend, OpSpec spec) {
    TensorSpec& w = spec.kind == op::kConv2dBackwardFilter ? spec.outputs[0] : spec.inputs[1];
    w.layout = Layout::Any();
    const auto kernel = backend.MakeKernel(spec);
    return (&w == &spec.outputs[0] ? kernel->output_layouts()[0] : kernel->input_layouts()[1]) ==
           Layout::Filter();
  };
  const std::string problem = PrecisionProblem(Precision::kBf16, *MakeOneDnnBackend(1));
  if (!problem.empty()) fmt::print("skipped: in bf16: {}\n", problem);
  int cases = 0;
  for (const ConformanceCase& c : ConformanceCases()) {
    if (c.name.find("_tiles") == std::string::npos) continue;
    const auto direct = MakeOneDnnBackend(1);
    if (!direct->Supports(c.spec)) continue;
    SCOPED_TRACE(c.name);
    ++cases;
    OpSpec exact = c.spec;
    exact.attributes.as<Conv2dAttributes>().exact = true;
    EXPECT_FALSE(uses_winograd(*direct, exact));
    direct->UseWinograd(Winograd::kNever);
    EXPECT_FALSE(uses_winograd(*direct, c.spec));
    for (const int threads : {1, 3, 20}) {
      SCOPED_TRACE(threads);
      const auto backend = MakeOneDnnBackend(threads);
      EXPECT_TRUE(uses_winograd(*backend, c.spec));
      ExpectConformsIn(Precision::kFp32, *backend, c, false);
      if (!problem.empty()) continue;
      backend->SetPrecision(Precision::kBf16);
      backend->UseWinograd(Winograd::kIfPossible);
      EXPECT_TRUE(uses_winograd(*backend, InType(c.spec, DType::kBF16)));
      ExpectConformsIn(Precision::kBf16, *backend, c, false);
    }
  }
  EXPECT_EQ(cases, 9);
}

class LayoutPropagation : public ::testing::TestWithParam<TestedBackend> {
 protected:
  void SetUp() override {
    if (const std::string problem = GetParam().unavailable_reason(); !problem.empty())
      GTEST_SKIP() << "skipped: " << problem;
    backend_ = GetParam().make(kThreads);
  }
  std::unique_ptr<Backend> backend_;
};

// Blocked activations stay blocked, so these operations need no reorder.
TEST_P(LayoutPropagation, ChannelOperationsKeepBlocks) {
  const UseMemoryOf memory(*backend_);
  const Shape x{2, 32, 6, 6};
  const Layout blocks = ConvolutionLayout(*backend_, x);
  for (OpSpec spec : {ConcatSpec(x, {32, 32}), SliceSpec(x, 16, 16), Pad2dSpec(x, {0, 0, 1, 1}),
                      ScaleChannelsSpec(x)}) {
    spec = SpecForPlan(*backend_, spec, true);
    const auto kernel = backend_->MakeKernel(spec);
    EXPECT_EQ(kernel->input_layouts()[0], blocks) << Name(spec.kind);
    EXPECT_EQ(kernel->output_layouts()[0], ConvolutionLayout(*backend_, spec.outputs[0].shape))
        << Name(spec.kind);
  }
}

// Runs conv 3 -> 20 channels, batch norm + ReLU, pool, conv 20 -> 7 without reorders to plain
// layouts. No vector width divides these numbers of channels. If a kernel writes to the padding of
// a blocked layout, the result of the second convolution is wrong.
TEST_P(LayoutPropagation, PaddedChannelsDoNotLeak) {
  const UseMemoryOf memory(*backend_);
  const ConvSizes first = Conv({2, 3, 10, 10}, 20, 3, {}, {.bias = true});
  const BatchNormSizes norm{.x = first.y(), .attributes = {.relu = true}};
  const PoolSizes pool{first.y(), {}};
  const ConvSizes second = Conv(pool.y(), 7, 3);
  const auto run = [&](const Backend& b, DType dtype) {
    uint64_t seed = 100;
    GuardedTensor x;
    Elements result;
    for (OpSpec spec :
         {Conv2dSpec(first), BatchNormSpec(norm), Pool2dSpec(pool), Conv2dSpec(second)}) {
      if (dtype == DType::kF64) spec = InDouble(spec);
      std::vector<Elements> elements;
      for (const TensorSpec& t : spec.inputs) {
        elements.push_back(t.present ? RandomElements(t.shape.size(), seed++) : Elements());
      }
      std::vector<GuardedTensor> inputs = MakeInputs(spec, elements);
      if (x.present()) inputs[0] = std::move(x);
      OpSpec asked = SpecForPlan(b, spec, true);
      asked.inputs[0].layout = inputs[0].layout();
      OpRun op(b, asked, inputs);
      op.Run({});
      x = std::move(op.output(0));
      result = Reordered(b, x, spec.outputs[0].layout).Read();
    }
    return result;
  };
  ExpectClose("y", run(*backend_, DType::kF32), run(Oracle(), DType::kF64), 9.0 * 20 * 9 * 3);
}

INSTANTIATE_TEST_SUITE_P(Backends, LayoutPropagation, ::testing::ValuesIn(kTested),
                         [](const auto& info) { return std::string(info.param.name); });

// 20 channels in blocks of 16 or 8: the lanes after the last channel must stay 0, because the next
// convolution reads them.
TEST(PaddedChannels, StayZero) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "onednn is not built in";
  const auto backend = MakeOneDnnBackend(kThreads);
  const Shape x{2, 20, 4, 4};
  if (ConvolutionLayout(*backend, x).is_plain())
    GTEST_SKIP() << "this CPU's convolutions keep NHWC";
  for (const OpSpec& spec :
       {ConcatSpec(x, {20, 20, 7}), SliceSpec(x, 3, 9), Pad2dSpec(x, {1, 1, -1, 0}),
        ScaleChannelsSpec(x), SameShapeSpec(op::kHardActivation, HardActivationAttributes{}, x, 1),
        SameShapeSpec(op::kDropout, DropoutAttributes{.per_row = true}, x, 1)}) {
    SCOPED_TRACE(Name(spec.kind));
    std::vector<Elements> in;
    for (const TensorSpec& t : spec.inputs) in.emplace_back(t.shape.size(), 1.0);
    OpRun run(*backend, SpecForPlan(*backend, spec, true), MakeInputs(spec, in));
    run.Run({.seed = 1});
    const Tensor& y = run.output(0).tensor();
    ASSERT_GT(y.bytes(), sizeof(float) * static_cast<size_t>(y.size())) << "not padded";
    const auto* floats = reinterpret_cast<const float*>(y.data);
    double stored = 0, visible = 0;
    for (size_t i = 0; i < y.bytes() / sizeof(float); ++i) stored += std::abs(floats[i]);
    const GuardedTensor plain = Reordered(*backend, run.output(0), Layout::Nhwc());
    for (double v : plain.Read()) visible += std::abs(v);
    EXPECT_FLOAT_EQ(static_cast<float>(stored), static_cast<float>(visible));
  }
}

TEST(ReferenceBackend, ThreadsChangeNoBits) {
  const auto one = MakeReferenceBackend(1), three = MakeReferenceBackend(3);
  for (const ConformanceCase& c : ConformanceCases()) {
    const std::vector<Elements> inputs = CaseInputs(c, DType::kF32);
    const Results a = RunCase(*one, c, DType::kF32, inputs, false, false);
    const Results b = RunCase(*three, c, DType::kF32, inputs, false, false);
    EXPECT_EQ(a.outputs, b.outputs) << c.name;
    EXPECT_EQ(a.inputs, b.inputs) << c.name;
  }
}

// On GPUs, argmax is stored in bytes for windows of up to 256 pixels, and in wider integers for
// larger ones. This test uses fp32: in 16 bits, such windows have several maxima, and oneDNN takes
// any of them.
TEST(EmulatedGpu, FindsMaximaOfLargeWindows) {
  const auto gpu = MakeEmulatedCudaBackend(1), reference = MakeReferenceBackend(1);
  const Pool2dAttributes same{
      .window_h = 16, .window_w = 16, .stride_h = 1, .stride_w = 1, .padding = {0, 0, 1, 2}};
  const Pool2dAttributes larger{.window_h = 17, .window_w = 16, .stride_h = 2, .stride_w = 3};
  for (const Pool2dAttributes& a : {same, larger}) {
    const PoolSizes sizes{{2, 8, 20, 19}, a};
    const OpSpec forward = Pool2dSpec(sizes), backward = Pool2dBackwardSpec(sizes);
    const Elements x = RandomElements(2 * 8 * 20 * 19, 1);
    const Elements dy = RandomElements(backward.inputs[0].shape.size(), 2);
    std::vector<Elements> dx;
    for (const Backend* backend : {gpu.get(), reference.get()}) {
      const Elements argmax = RunPlain(*backend, forward, {x})[1];
      dx.push_back(RunPlain(*backend, backward, {dy, argmax})[0]);
    }
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(dx[0][i], dx[1][i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace carole::testing
