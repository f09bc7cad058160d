// Checks the layouts that kernels of different operations pass to each other.
#include <gtest/gtest.h>

#include <cmath>

#include "src/backend/ops/dropout.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/multiply.h"
#include "tests/backend/conformance.h"

namespace carole::testing {
namespace {

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
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: onednn is not built in";
  const auto backend = MakeOneDnnBackend(kThreads);
  const Shape x{2, 20, 4, 4};
  if (ConvolutionLayout(*backend, x).is_plain())
    GTEST_SKIP() << "skipped: this CPU's convolutions keep NHWC";
  const FakeQuantAttributes latest{.range = FakeQuantAttributes::Range::kLatest};
  for (const OpSpec& spec :
       {ConcatSpec(x, {20, 20, 7}), SliceSpec(x, 3, 9), Pad2dSpec(x, {1, 1, -1, 0}),
        ScaleChannelsSpec(x), FakeQuantSpec(PlainSpec(x), latest), FoldedBatchNormSpec({x}),
        SameShapeSpec(op::kMultiply, {}, x, 2),
        SameShapeSpec(op::kHardActivation, HardActivationAttributes{}, x, 1),
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

}  // namespace
}  // namespace carole::testing
