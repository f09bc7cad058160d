// Runs a conformance case on a backend and compares the results with those of the reference backend
// in double. Each case is run
//   * in fp32, and in the other precisions that the backend supports;
//   * with plain layouts, and with the layouts that the backend's own convolutions produce;
//   * in place too, if the kernel allows it.
// Fake quantization is compared with the reference in fp32, and must have the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/pool2d.h"
#include "tests/backend/conformance_inputs.h"
#include "tests/support/cuda_emulation/backend.h"

namespace carole::testing {

// The tolerance is kRoundingsBase + kRoundingsPerRoot * sqrt(terms) roundings of fp32, relative to
// the largest element. Rounding errors of a sum of `terms` numbers grow like a random walk, in any
// order.
inline constexpr double kRounding = 0x1p-24;
inline constexpr double kRoundingsBase = 8;
inline constexpr double kRoundingsPerRoot = 4;

// Results that are stored in 16 bits are sometimes rounded several times while they are summed
// (sums of three, gradients of overlapping pool windows). The summands may be larger than the sum.
inline constexpr double kNarrowRoundings = 4;

inline double RoundingOf(DType stored) {
  return stored == DType::kBF16 ? 0x1p-9 : stored == DType::kF16 ? 0x1p-12 : 0;
}

inline double Tolerance(double terms, const Elements& want, double rounding) {
  double largest = 0;
  for (double v : want) largest = std::max(largest, std::abs(v));
  return (kNarrowRoundings * rounding +
          kRounding * (kRoundingsBase + kRoundingsPerRoot * std::sqrt(terms))) *
         largest;
}

inline void ExpectWithin(double tolerance, const std::string& what, const Elements& got,
                         const Elements& want) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance)  // false for NaN
        << what << ": element " << i << " of " << got.size() << ": got " << got[i] << ", want "
        << want[i] << " within " << tolerance;
  }
}

inline void ExpectClose(const std::string& what, const Elements& got, const Elements& want,
                        double terms, double rounding = 0) {
  ExpectWithin(Tolerance(terms, want, rounding), what, got, want);
}

// Compares db, which is the sum of dx over pixels. The errors of dx add up like a random walk.
inline void ExpectSumsClose(const Elements& db, const std::vector<Elements>& want, double terms,
                            double rounding) {
  constexpr auto kDataOut = kPosition<Conv2dBackwardDataOutputs>;
  if (db.empty() && want[kDataOut.db].empty()) return;
  const Elements& dx = want[kDataOut.dx];
  const auto pixels = static_cast<double>(dx.size() / want[kDataOut.db].size());
  ExpectWithin(Tolerance(terms, dx, rounding) * std::sqrt(pixels), "db", db, want[kDataOut.db]);
}

inline void ExpectSameZeros(const Elements& got, const Elements& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i] == 0, want[i] == 0) << "another dropout mask at element " << i;
  }
}

// The layout of activations that this backend's convolutions produce.
inline Layout ConvolutionLayout(const Backend& backend, const Shape& shape,
                                DType type = DType::kF32) {
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
inline OpSpec SpecForPlan(const Backend& backend, OpSpec spec, bool native) {
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
inline GuardedTensor RunForArgmax(const Backend& backend, const OpSpec& backward, DType dtype,
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
// does (src/graph/plan/compiler.cpp: UseNarrowFilterGradient()).
inline OpSpec WithNarrowFilterGradient(const Backend& backend, OpSpec spec) {
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
inline Results RunCase(const Backend& backend, const ConformanceCase& c, DType dtype,
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

inline bool IsProduct(OpKind kind) {
  return IsFilterInput(kind, 1) || kind == op::kConv2dBackwardFilter ||
         kind == op::kLinearBackwardFilter;
}

// The rounding error of output `o` in addition to that of fp32.
inline double RoundingOf(const ConformanceCase& c, Precision precision, bool may_round_dw,
                         size_t o) {
  const DType type = ActivationType(precision);
  if (precision == Precision::kTf32 && IsProduct(c.spec.kind)) return 0x1p-11;
  if (may_round_dw && o == 0 && c.spec.kind == op::kConv2dBackwardFilter) return RoundingOf(type);
  if (c.spec.kind == op::kConv2dBackwardData) return RoundingOf(type);
  return RoundingOf(InType(c.spec, type).outputs[o].dtype);
}

// Whether all backends give the bits of the reference in fp32. Otherwise small errors would change
// codes.
inline bool HasExactResults(OpKind kind) {
  return kind == op::kFakeQuant || kind == op::kFakeQuantBackward || kind == op::kAssign;
}

// Nets are quantized in fp32 only.
inline bool IsOnlyInFp32(OpKind kind) {
  return HasExactResults(kind) || kind == op::kFoldWeights || kind == op::kFoldWeightsBackward ||
         kind == op::kFoldedBatchNorm || kind == op::kFoldedBatchNormBackward;
}

inline void ExpectSameBits(const Results& got, const Results& want) {
  for (size_t i = 0; i < want.outputs.size(); ++i)
    ExpectWithin(0, "output " + std::to_string(i), got.outputs[i], want.outputs[i]);
  for (size_t i = 0; i < want.inputs.size(); ++i)
    ExpectWithin(0, "state " + std::to_string(i), got.inputs[i], want.inputs[i]);
}

inline void ExpectConforms(const ConformanceCase& c, Precision precision, bool may_round_dw,
                           const Results& got, const Results& want) {
  if (HasExactResults(c.spec.kind)) return ExpectSameBits(got, want);
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
inline const TestedBackend kTested[] = {
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

inline void PrintTo(const TestedBackend& backend, std::ostream* out) { *out << backend.name; }

inline void ExpectConformsIn(Precision precision, const Backend& backend, const ConformanceCase& c,
                             bool may_round_dw) {
  SCOPED_TRACE(Name(precision));
  const DType type = ActivationType(precision);
  const std::vector<Elements> inputs = CaseInputs(c, type);
  const DType oracle = HasExactResults(c.spec.kind) ? DType::kF32 : DType::kF64;
  const Results want = RunCase(Oracle(), c, oracle, inputs, false, false);
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

}  // namespace carole::testing
