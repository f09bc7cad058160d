// One list of cases (conformance_cases.h) for every backend: each is run in fp32, and in the other
// precisions that the backend has, and compared with the reference backend in double on the same
// numbers, with plain layouts and with those that the backend's own convolutions hand on, and in
// place where the kernel allows it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/core/hash.h"
#include "src/core/simd.h"
#include "tests/backend/conformance_cases.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_runner.h"
#include "tests/support/precision_problem.h"

namespace carole::testing {
namespace {

constexpr int kThreads = 2;

// An element may be off by kRoundingsBase + kRoundingsPerRoot * sqrt(terms) roundings of fp32,
// relative to the largest element: errors of `terms` sums in any order grow like a random walk.
constexpr double kRounding = 0x1p-24;
constexpr double kRoundingsBase = 8;
constexpr double kRoundingsPerRoot = 4;

// Results that are stored in 16 bits are rounded now and then while they are added up (sums of
// three, gradients where windows of a pool overlap), and what is added may be larger than its sum.
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

// Sums over pixels of the dx that a backend has: errors of each of them, which grow like a walk.
void ExpectSumsClose(const Elements& db, const std::vector<Elements>& want, double terms,
                     double rounding) {
  using Places = Conv2dBackwardDataPlaces;
  if (db.empty() && want[Places::kDb].empty()) return;
  const Elements& dx = want[Places::kDx];
  const auto pixels = static_cast<double>(dx.size() / want[Places::kDb].size());
  ExpectWithin(Tolerance(terms, dx, rounding) * std::sqrt(pixels), "db", db, want[Places::kDb]);
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

// The numbers that places of these types can hold.
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

// The statistics and y of the forward pass belong to x.
void PrepareBatchNormBackward(const ConformanceCase& c, std::vector<Elements>& inputs) {
  using P = BatchNormBackwardPlaces;
  const auto& specs = c.spec.inputs;
  const OpSpec forward =
      InDouble(BatchNormSpec({.x = specs[P::kX].shape,
                              .gamma = specs[P::kGamma].present,
                              .beta = specs[P::kBeta].present,
                              .residual = c.spec.outputs[P::kDresidual].present,
                              .attributes = c.spec.attributes_as<BatchNormAttributes>(),
                              .passed = HasReluBitmask(c.spec)}));
  const Elements ones(specs[P::kMean].shape.size(), 1.0);
  Elements residual;
  if (forward.inputs[BatchNormPlaces::kResidual].present) {
    residual = inputs[P::kDy];
    residual.resize(inputs[P::kX].size());  // of a slice, dy has more
  }
  const auto outputs = RunPlain(
      Oracle(), forward, {inputs[P::kX], inputs[P::kGamma], inputs[P::kBeta], residual, ones, ones},
      c.context);
  if (specs[P::kY].present) inputs[P::kY] = Rounded(outputs[BatchNormPlaces::kY]);
  if (HasReluBitmask(c.spec)) inputs[P::kReluBitmask] = outputs[BatchNormPlaces::kReluBitmask];
  inputs[P::kMean] = Rounded(outputs[BatchNormPlaces::kMean]);
  inputs[P::kRstd] = Rounded(outputs[BatchNormPlaces::kRstd]);
}

// Gives the inputs of some operations the values that they can have.
void PrepareInputs(const ConformanceCase& c, std::vector<Elements>& inputs) {
  switch (c.spec.kind) {
    case OpKind::kBatchNorm:
      for (double& v : inputs[BatchNormPlaces::kMovingVariance]) v = std::abs(v) + 0.5;
      break;
    case OpKind::kBatchNormBackward:
      PrepareBatchNormBackward(c, inputs);
      break;
    case OpKind::kRelu:
      for (double& v : inputs[0]) v *= 4;  // beyond 6 now and then
      break;
    case OpKind::kConv2dBackwardData:
    case OpKind::kConv2dBackwardFilter:
      static_assert(+Conv2dBackwardDataPlaces::kReluY == +FilterGradientPlaces::kReluY);
      if (MasksByRelu(c.spec)) {
        for (double& v : inputs[FilterGradientPlaces::kReluY]) v = std::max(v, 0.0);
      }
      break;
    case OpKind::kReluBackward: {
      const double ceiling = c.spec.attributes_as<ReluAttributes>().ceiling;
      for (double& v : inputs[1]) v = std::clamp(4 * v, 0.0, ceiling > 0 ? ceiling : 100.0);
      break;
    }
    case OpKind::kHardActivation:
      for (double& v : inputs[0]) v *= 4;  // beyond 3 on both sides
      break;
    case OpKind::kHardActivationBackward:
      for (double& v : inputs[1]) v *= 4;
      break;
    case OpKind::kPool2d:
      for (double& v : inputs[0]) v = std::round(2 * v);  // ties: the first largest must win
      break;
    case OpKind::kNormalize:
      for (double& v : inputs[0]) v = std::clamp(std::round(128 + 70 * v), 0.0, 255.0);
      break;
    case OpKind::kSoftmaxCrossEntropy: {
      const int64_t k = c.spec.inputs[0].shape[1];
      for (size_t i = 0; i < inputs[1].size(); ++i) {
        inputs[2][i] = i % 3 == 1 ? 0 : 1 + 0.5 * (i % 2);
        inputs[1][i] = i % 3 == 1 ? -1 : static_cast<double>(7 * i % k);
      }
      break;
    }
    default:
      break;
  }
}

// In numbers that fit into `type`.
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

// The layout in which this backend's convolutions hand on an activation.
Layout HandedOn(const Backend& backend, const Shape& shape, DType type = DType::kF32) {
  const OpSpec plain = Conv2dSpec(Conv(shape, shape[1], 1));
  OpSpec spec = InType(plain, type);
  if (!backend.Supports(spec)) return Layout::PlainActivation(shape);
  for (auto* places : {&spec.inputs, &spec.outputs}) {
    for (TensorSpec& t : *places) t.layout = Layout::Any();
  }
  return backend.MakeKernel(spec)->output_layouts()[0];
}

// A plain spec as a plan would ask for it: outputs as the kernel likes, and with `native` also
// inputs in the backend's own layouts.
OpSpec AskedFor(const Backend& backend, OpSpec spec, bool native) {
  if (spec.kind == OpKind::kReorder) return spec;
  for (TensorSpec& t : spec.outputs) t.layout = Layout::Any();
  for (TensorSpec& t : spec.inputs) {
    if (!native || !t.present || t.dtype == DType::kF64 || t.dtype == DType::kI32 ||
        t.dtype == DType::kU8)
      continue;
    if (t.layout == Layout::Filter()) t.layout = Layout::Any();
    if (t.layout == Layout::Nhwc()) t.layout = HandedOn(backend, t.shape, t.dtype);
  }
  return spec;
}

// The argmax that a backend's own forward pass makes; it only means something to its backward pass.
GuardedTensor RunForArgmax(const Backend& backend, const OpSpec& backward, DType dtype,
                           bool native) {
  OpSpec forward =
      Pool2dSpec({backward.outputs[0].shape, backward.attributes_as<Pool2dAttributes>()});
  forward = InType(forward, dtype);
  Elements x = RandomElements(forward.inputs[0].shape.size(), 1);
  for (double& v : x) v = std::round(2 * v);
  OpRun run(backend, AskedFor(backend, forward, native), MakeInputs(forward, {x}));
  run.Run({});
  return std::move(run.output(1));
}

// As plans ask for a filter's gradient that the backend may round before it is cast with others
// (src/graph/compiler.cpp).
OpSpec Rounding(const Backend& backend, OpSpec spec) {
  if (backend.on_host() || spec.kind != OpKind::kConv2dBackwardFilter) return spec;
  OpSpec rounded = spec;
  rounded.outputs[0].dtype = spec.inputs[0].dtype;
  return backend.Supports(rounded) ? rounded : spec;
}

struct Results {
  std::vector<Elements> outputs;
  std::vector<Elements> inputs;  // after the run
};

// Runs the case and brings the results back to plain layouts.
Results RunCase(const Backend& backend, const ConformanceCase& c, DType dtype,
                const std::vector<Elements>& elements, bool native, bool in_place) {
  const OpSpec plain = Rounding(backend, InType(c.spec, dtype));
  OpSpec spec = AskedFor(backend, plain, native);
  std::vector<GuardedTensor> inputs = MakeInputs(plain, elements);
  const bool needs_argmax = spec.kind == OpKind::kPool2dBackward && spec.inputs[1].present;
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

bool IsProduct(OpKind kind) { return kind <= OpKind::kLinearBackwardFilter; }

// How output `o` is rounded beyond fp32.
double RoundingOf(const ConformanceCase& c, Precision precision, bool narrows_filters, size_t o) {
  const DType type = ActivationType(precision);
  if (precision == Precision::kTf32 && IsProduct(c.spec.kind)) return 0x1p-11;
  if (narrows_filters && o == 0 && c.spec.kind == OpKind::kConv2dBackwardFilter)
    return RoundingOf(type);
  if (c.spec.kind == OpKind::kConv2dBackwardData) return RoundingOf(type);
  return RoundingOf(InType(c.spec, type).outputs[o].dtype);
}

void ExpectConforms(const ConformanceCase& c, Precision precision, bool narrows_filters,
                    const Results& got, const Results& want) {
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    const double rounding = RoundingOf(c, precision, narrows_filters, i);
    if (c.spec.kind == OpKind::kConv2dBackwardData && i == Conv2dBackwardDataPlaces::kDb) {
      ExpectSumsClose(got.outputs[i], want.outputs, c.terms, rounding);
    } else {
      ExpectClose("output " + std::to_string(i), got.outputs[i], want.outputs[i], c.terms,
                  rounding);
    }
  }
  for (size_t i = 0; i < want.inputs.size(); ++i) {
    ExpectClose("state " + std::to_string(i), got.inputs[i], want.inputs[i], c.terms);
  }
  if (c.spec.kind == OpKind::kDropout || c.spec.kind == OpKind::kDropoutBackward) {
    ExpectSameZeros(got.outputs[0], want.outputs[0]);
  }
}

struct TestedBackend {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(int threads);
  std::string (*problem)();            // why it cannot be made here; empty when it can
  std::vector<Precision> others = {};  // than fp32, where the machine has them
  // Its filters' gradients may be rounded to 16 bits before they are fp32.
  bool narrows_filters = false;
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
     WhyNoGpu,
     {Precision::kTf32, Precision::kBf16, Precision::kFp16},
     true},
};

void PrintTo(const TestedBackend& backend, std::ostream* out) { *out << backend.name; }

class Conformance : public ::testing::TestWithParam<std::tuple<TestedBackend, ConformanceCase>> {};

void ExpectConformsIn(Precision precision, const Backend& backend, const ConformanceCase& c,
                      bool narrows_filters) {
  SCOPED_TRACE(Name(precision));
  const DType type = ActivationType(precision);
  const std::vector<Elements> inputs = CaseInputs(c, type);
  const Results want = RunCase(Oracle(), c, DType::kF64, inputs, false, false);
  const OpSpec plain = InType(c.spec, type);
  for (const bool native : {false, true}) {
    SCOPED_TRACE(native ? "the backend's own layouts" : "plain layouts");
    ExpectConforms(c, precision, narrows_filters, RunCase(backend, c, type, inputs, native, false),
                   want);
    const OpSpec spec = AskedFor(backend, plain, native);
    if (!OpRun(backend, spec, MakeInputs(plain, inputs)).CanRunInPlace()) continue;
    SCOPED_TRACE("in place");
    ExpectConforms(c, precision, narrows_filters, RunCase(backend, c, type, inputs, native, true),
                   want);
  }
}

TEST_P(Conformance, MatchesReferenceInDouble) {
  const auto& [entry, c] = GetParam();
  if (const std::string problem = entry.problem(); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  const auto backend = entry.make(kThreads);
  const UseMemoryOf memory(*backend);
  const OpSpec narrow = InType(c.spec, DType::kBF16);
  const bool has_narrow = c.spec.kind != OpKind::kReorder &&
                          (IsNarrow(narrow.inputs[0].dtype) || IsNarrow(narrow.outputs[0].dtype));
  const bool in_fp32 = backend->Supports(c.spec);
  if (!in_fp32 && !(has_narrow && backend->Supports(narrow)))
    GTEST_SKIP() << entry.name << " does not support " << c.name;
  if (in_fp32) ExpectConformsIn(Precision::kFp32, *backend, c, entry.narrows_filters);
  if (!has_narrow) return;
  for (const Precision precision : entry.others) {
    // The same as fp32, or as little there.
    if (precision == Precision::kTf32 && !(IsProduct(c.spec.kind) && in_fp32)) continue;
    const std::string problem = PrecisionProblem(precision, *backend);
    if (!problem.empty()) GTEST_SKIP() << "skipped: " << problem;
    EXPECT_TRUE(backend->Supports(InType(c.spec, ActivationType(precision)))) << Name(precision);
    ExpectConformsIn(precision, *backend, c, entry.narrows_filters);
  }
}

// What cuDNN does in pairs of outputs or with a mask only where that is timed to be faster.
const TestedBackend kOptionalWays[] = {
    {"emulated_cuda_optional",
     [](int) { return MakeEmulatedCudaBackend({.takes_optional = true}); },
     [] { return std::string(); },
     {Precision::kBf16, Precision::kFp16},
     true},
    {"cuda_optional",
     [](int) { return MakeCudaBackend({.takes_optional = true}); },
     WhyNoGpu,
     {Precision::kBf16, Precision::kFp16},
     true},
};

std::vector<ConformanceCase> CasesWithOptionalWays() {
  using Task = cuda::ConvolutionTask;
  std::vector<ConformanceCase> cases = ConformanceCases();
  std::erase_if(cases, [](const ConformanceCase& c) {
    if (!c.name.starts_with("conv2d")) return true;
    const Task task = Task::Of(InType(c.spec, DType::kBF16)).ForLibrary(false);
    return !task.mask && !task.FitsPairs();
  });
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Conformance::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(OptionalWays, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kOptionalWays),
                                            ::testing::ValuesIn(CasesWithOptionalWays())),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Backends, Conformance,
                         ::testing::Combine(::testing::ValuesIn(kTested),
                                            ::testing::ValuesIn(ConformanceCases())),
                         NameOf);

// The cases above that Winograd's algorithm is for: it is taken, but not where it is forbidden, and
// any number of threads shares the tiles, also more than there are rows of them.
TEST(Winograd, ConformsOnAnyNumberOfThreads) {
  if (!OneDnnAvailable() || SimdLevel() < 3) GTEST_SKIP() << "skipped: oneDNN or AVX2 is missing";
  // The library's own kernels have filters in blocks.
  const auto takes_it = [](const Backend& backend, OpSpec spec) {
    TensorSpec& w = spec.kind == OpKind::kConv2dBackwardFilter ? spec.outputs[0] : spec.inputs[1];
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
    std::get<Conv2dAttributes>(exact.attributes).exact = true;
    EXPECT_FALSE(takes_it(*direct, exact));
    direct->UseWinograd(Winograd::kNever);
    EXPECT_FALSE(takes_it(*direct, c.spec));
    for (const int threads : {1, 3, 20}) {
      SCOPED_TRACE(threads);
      const auto backend = MakeOneDnnBackend(threads);
      EXPECT_TRUE(takes_it(*backend, c.spec));
      ExpectConformsIn(Precision::kFp32, *backend, c, false);
      if (!problem.empty()) continue;
      backend->SetPrecision(Precision::kBf16);
      backend->UseWinograd(Winograd::kWherePossible);
      EXPECT_TRUE(takes_it(*backend, InType(c.spec, DType::kBF16)));
      ExpectConformsIn(Precision::kBf16, *backend, c, false);
    }
  }
  EXPECT_EQ(cases, 9);
}

class Chains : public ::testing::TestWithParam<TestedBackend> {
 protected:
  void SetUp() override {
    if (const std::string problem = GetParam().problem(); !problem.empty())
      GTEST_SKIP() << "skipped: " << problem;
    backend_ = GetParam().make(kThreads);
  }
  std::unique_ptr<Backend> backend_;
};

// Blocked activations stay blocked: a plan with these operations needs no reorder.
TEST_P(Chains, ChannelOperationsKeepBlocks) {
  const UseMemoryOf memory(*backend_);
  const Shape x{2, 32, 6, 6};
  const Layout blocks = HandedOn(*backend_, x);
  for (OpSpec spec : {ConcatSpec(x, {32, 32}), SliceSpec(x, 16, 16), Pad2dSpec(x, {0, 0, 1, 1}),
                      ScaleChannelsSpec(x)}) {
    spec = AskedFor(*backend_, spec, true);
    const auto kernel = backend_->MakeKernel(spec);
    EXPECT_EQ(kernel->input_layouts()[0], blocks) << Name(spec.kind);
    EXPECT_EQ(kernel->output_layouts()[0], HandedOn(*backend_, spec.outputs[0].shape))
        << Name(spec.kind);
  }
}

// conv 3 -> 20 channels, batch norm + ReLU, pool, conv 20 -> 7: channels that no vector width
// divides, handed on without a reorder to plain. What a kernel leaves in the padding of a blocked
// layout would show in the second convolution.
TEST_P(Chains, PaddedChannelsDoNotLeak) {
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
      OpSpec asked = AskedFor(b, spec, true);
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

INSTANTIATE_TEST_SUITE_P(Backends, Chains, ::testing::ValuesIn(kTested),
                         [](const auto& info) { return std::string(info.param.name); });

// 20 channels in blocks of 16 or 8: the lanes behind the last one must stay 0, since the next
// convolution reads them.
TEST(PaddedChannels, StayZero) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "onednn is not built in";
  const auto backend = MakeOneDnnBackend(kThreads);
  const Shape x{2, 20, 4, 4};
  if (HandedOn(*backend, x).is_plain()) GTEST_SKIP() << "this CPU's convolutions keep NHWC";
  for (const OpSpec& spec :
       {ConcatSpec(x, {20, 20, 7}), SliceSpec(x, 3, 9), Pad2dSpec(x, {1, 1, -1, 0}),
        ScaleChannelsSpec(x),
        SameShapeSpec(OpKind::kHardActivation, HardActivationAttributes{}, x, 1),
        SameShapeSpec(OpKind::kDropout, DropoutAttributes{.per_row = true}, x, 1)}) {
    SCOPED_TRACE(Name(spec.kind));
    std::vector<Elements> in;
    for (const TensorSpec& t : spec.inputs) in.emplace_back(t.shape.size(), 1.0);
    OpRun run(*backend, AskedFor(*backend, spec, true), MakeInputs(spec, in));
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

// Places of maxima are bytes in windows of up to 256 pixels, and wider in larger ones. In fp32: in
// 16 bits such windows have several maxima, of which oneDNN takes any.
TEST(EmulatedGpu, MaximaOfLargeWindows) {
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
