// Tests the copies that give cuDNN more channels than an image has, and casts of many tensors, on
// the emulated GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "src/backend/cuda/convolution/convolution_task.h"
#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/ops/copies.h"
#include "src/core/divide_up.h"
#include "src/core/float16.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::cuda {
namespace {

template <typename Element>
void ExpectPadded(DType type, int64_t x_channels, int64_t channels, const Padding& padding) {
  const int64_t h = 5, w = 7;
  const Shape x_shape{3, x_channels, h, w};
  const Shape y_shape{3, channels, h + padding.top + padding.bottom,
                      w + padding.left + padding.right};
  std::vector<Element> x(x_shape.size()), y(y_shape.size(), Element{9});
  std::iota(x.begin(), x.end(), Element{10});
  Pad(nullptr, type, x.data(), x_shape, padding, y.data(), y_shape);
  size_t at = 0;
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t row = -padding.top; row < h + padding.bottom; ++row) {
      for (int64_t column = -padding.left; column < w + padding.right; ++column) {
        for (int64_t c = 0; c < channels; ++c, ++at) {
          const bool is_there = row >= 0 && row < h && column >= 0 && column < w && c < x_channels;
          const int64_t from = ((n * h + row) * w + column) * x_channels + c;
          ASSERT_EQ(y[at], is_there ? x[from] : Element{0})
              << n << " " << row << " " << column << " " << c;
        }
      }
    }
  }
}

TEST(Pad, AddsChannelsOfZerosAndABorder) {
  for (const Padding& padding : {Padding{}, Padding{0, 0, 1, 1}, Padding{2, 1, 0, 3}}) {
    for (const int64_t channels : {1, 2, 3}) {
      ExpectPadded<uint32_t>(DType::kF32, channels, 4, padding);
      ExpectPadded<uint16_t>(DType::kBF16, channels, 4, padding);
      ExpectPadded<uint16_t>(DType::kF16, channels, 8, padding);
    }
    ExpectPadded<uint16_t>(DType::kBF16, 7, 8, padding);
    ExpectPadded<uint16_t>(DType::kBF16, 3, 3, padding);
  }
}

TEST(CastFilter, DropsPaddedChannels) {
  const Shape from_shape{5, 4, 3, 2}, to_shape{5, 3, 3, 2};
  std::vector<Bf16> from(from_shape.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = Bf16(static_cast<float>(i));
  std::vector<float> to(to_shape.size(), -1);
  CastFilter(nullptr, DType::kBF16, from.data(), from_shape, to.data(), to_shape);
  for (size_t i = 0; i < to.size(); ++i)
    EXPECT_EQ(to[i], static_cast<float>(i / 3 * 4 + i % 3)) << i;
}

using testing::Conv;
using testing::ConvSizes;
using testing::Elements;

// Returns the operation in double, with filters (K,R,S,C) in memory, as cuDNN has them.
OpSpec ToDoubleChannelsLast(OpSpec spec) {
  for (auto* places : {&spec.inputs, &spec.outputs}) {
    for (TensorSpec& t : *places) {
      if (t.layout == Layout::Filter()) t.layout = Layout::Nhwc();
    }
  }
  return testing::InDouble(spec);
}

// Applies `gather`, a copy of bf16 elements, to values that bf16 represents exactly.
template <typename Gather>
Elements GatherBf16(const Elements& from, const Shape& to_shape, const Gather& gather) {
  std::vector<Bf16> narrow, gathered(to_shape.size(), Bf16(9));
  for (const double v : from) narrow.emplace_back(static_cast<float>(v));
  gather(narrow.data(), gathered.data());
  return {gathered.begin(), gathered.end()};
}

// Returns integers that are so small that their sums are exact in fp16.
Elements SmallNumbers(const Shape& shape, int64_t factor) {
  Elements numbers(shape.size());
  for (int64_t i = 0; i < shape.size(); ++i) numbers[i] = static_cast<double>(i * factor % 11 - 5);
  return numbers;
}

// Computes a convolution, or the gradient of its filter, with the reference backend.
Elements Convolved(const OpSpec& spec, const Elements& first, const Elements& second) {
  const auto backend = MakeReferenceBackend(1);
  std::vector<Elements> inputs{first, second};
  inputs.resize(spec.inputs.size());
  return testing::RunPlain(*backend, ToDoubleChannelsLast(spec), inputs)[0];
}

// Expects that CastFilterFromDepth() computes the gradient of the filter from that of the
// transformed filter.
void ExpectGradient(const ConvSizes& sizes, const ConvSizes& made, const PixelBlock& pixel_block,
                    const Elements& x, const Elements& made_x, const Elements& dy) {
  std::vector<Fp16> narrow;
  for (const double v : Convolved(Conv2dBackwardFilterSpec(made), made_x, dy))
    narrow.emplace_back(static_cast<float>(v));
  std::vector<float> got(sizes.w().size(), -1);
  CastFilterFromDepth(nullptr, DType::kF16, narrow.data(), made.w(), pixel_block, got.data(),
                      sizes.w());
  const Elements want = Convolved(Conv2dBackwardFilterSpec(sizes), x, dy);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]) << i;
}

// Expects equal results of a convolution over pixels and over pixel blocks, also for the gradient
// of the filter.
void ExpectSameConvolution(int64_t channels, int64_t taps, int stride, const Padding& padding,
                           int outputs, int64_t block_channels) {
  SCOPED_TRACE(::testing::Message() << channels << " channels, " << taps << " taps, stride "
                                    << stride << ", outputs " << outputs);
  const ConvSizes sizes = Conv({2, channels, 9, 12}, 5, taps,
                               {.stride_h = stride, .stride_w = stride, .padding = padding});
  const PixelBlock pixel_block{.rows = stride, .columns = stride * outputs, .outputs = outputs};
  const Shape y = sizes.y();
  ASSERT_EQ(y[3] % outputs, 0);
  const int64_t r = DivideUp(taps, stride),
                s = DivideUp(taps + (outputs - 1) * stride, pixel_block.columns);
  const ConvSizes in_blocks =
      Conv({2, block_channels, y[2] + r - 1, y[3] / outputs + s - 1}, 5 * outputs, {r, s});
  const Elements x = SmallNumbers(sizes.x, 5), w = SmallNumbers(sizes.w(), 7),
                 dy = SmallNumbers(y, 3);
  const Elements x_blocks = GatherBf16(x, in_blocks.x, [&](const Bf16* from, Bf16* to) {
    SpaceToDepth(nullptr, from, sizes.x, padding, pixel_block, to, in_blocks.x);
  });
  const Elements w_blocks = GatherBf16(w, in_blocks.w(), [&](const Bf16* from, Bf16* to) {
    FilterToDepth(nullptr, from, sizes.w(), pixel_block, to, in_blocks.w());
  });
  // In memory, two neighboring outputs lie like one output with twice the channels.
  EXPECT_EQ(Convolved(Conv2dSpec(sizes), x, w),
            Convolved(Conv2dSpec(in_blocks), x_blocks, w_blocks));
  ExpectGradient(sizes, in_blocks, pixel_block, x, x_blocks, dy);
}

TEST(SpaceToDepth, PreservesTheConvolution) {
  ExpectSameConvolution(3, 7, 2, {3, 3, 3, 3}, 1, 16);
  ExpectSameConvolution(3, 7, 2, {3, 3, 3, 3}, 2, 32);
  ExpectSameConvolution(3, 3, 2, {0, 0, 1, 1}, 2, 32);
  ExpectSameConvolution(3, 3, 1, {1, 1, 1, 1}, 2, 8);
  ExpectSameConvolution(1, 5, 1, {1, 2, 0, 2}, 2, 16);
  ExpectSameConvolution(4, 3, 2, {}, 1, 16);
  ExpectSameConvolution(4, 2, 2, {}, 1, 16);
  ExpectSameConvolution(2, 5, 2, {1, 2, 2, 1}, 1, 8);
}

// Expects equal results of a convolution with single outputs and with output pairs, as cuDNN gets
// them. The padding is part of the attributes or already part of x.
void ExpectSameInPairs(int64_t channels, int64_t taps, const Padding& padding) {
  SCOPED_TRACE(::testing::Message() << channels << " channels, " << taps << " taps");
  const ConvSizes sizes = Conv({2, channels, 9, 12}, 5, taps, {.padding = padding, .relu = true});
  const auto single =
      ConvolutionTask::Of(testing::InNarrow(Conv2dSpec(sizes), DType::kBF16)).ForLibrary(false);
  ASSERT_TRUE(single.CanPairOutputs());
  const ConvolutionTask pairs = single.WithPairedOutputs();
  const ConvSizes in_pairs = Conv(pairs.x, pairs.w[0], {taps, pairs.w[3]}, pairs.a);
  EXPECT_EQ(in_pairs.y(), pairs.y);
  const Elements x = SmallNumbers(sizes.x, 5), w = SmallNumbers(sizes.w(), 7);
  const Elements x_pairs = GatherBf16(x, pairs.x, [&](const Bf16* from, Bf16* to) {
    const bool is_framed = pairs.a.padding != padding;
    Pad(nullptr, DType::kBF16, from, sizes.x, is_framed ? padding : Padding{}, to, pairs.x);
  });
  const Elements w_pairs = GatherBf16(w, pairs.w, [&](const Bf16* from, Bf16* to) {
    FilterToPairs(nullptr, DType::kBF16, from, sizes.w(), to, pairs.w);
  });
  EXPECT_EQ(Convolved(Conv2dSpec(sizes), x, w), Convolved(Conv2dSpec(in_pairs), x_pairs, w_pairs));
}

TEST(FilterToPairs, PreservesTheConvolution) {
  ExpectSameInPairs(8, 3, {1, 1, 1, 1});
  ExpectSameInPairs(16, 5, {});
  ExpectSameInPairs(8, 3, {0, 0, 1, 2});
  ExpectSameInPairs(6, 5, {2, 2, 2, 2});
}

TEST(RepeatBias, RepeatsAndRounds) {
  const std::vector<float> from{1, 2, 3.01F};
  std::vector<float> to(6, -1);
  RepeatBias(nullptr, from.data(), 3, 2, DType::kF32, to.data());
  EXPECT_EQ(to, (std::vector<float>{1, 2, 3.01F, 1, 2, 3.01F}));
  std::vector<Bf16> rounded(3);
  RepeatBias(nullptr, from.data(), 3, 1, DType::kBF16, rounded.data());
  EXPECT_EQ(rounded, (std::vector<Bf16>{Bf16(1.0F), Bf16(2.0F), Bf16(3.015625F)}));
}

// Sizes that packs do not divide, and one that needs several blocks of threads.
template <typename Narrow>
void ExpectCasts(DType narrow) {
  const std::vector<int64_t> sizes{1, 7, 8, 8192, 20001, 64};
  OpSpec narrows{.kind = op::kCasts}, widens = narrows;
  std::vector<std::vector<float>> wide, back;
  std::vector<std::vector<Narrow>> rounded;
  for (const int64_t size : sizes) {
    const TensorSpec x{.shape = {size}, .layout = Layout::RowMajor()};
    TensorSpec y = x;
    y.dtype = narrow;
    narrows.inputs.push_back(x), narrows.outputs.push_back(y);
    widens.inputs.push_back(y), widens.outputs.push_back(x);
    wide.emplace_back(size), back.emplace_back(size, -1), rounded.emplace_back(size);
    for (int64_t i = 0; i < size; ++i) wide.back()[i] = 1.f / static_cast<float>(size + i);
  }
  const auto backend = testing::MakeEmulatedCudaBackend(1);
  const auto run = [&](const OpSpec& spec, auto& from, auto& to) {
    ASSERT_TRUE(backend->Supports(spec));
    KernelMemory memory;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const TensorSpec &x = spec.inputs[i], &y = spec.outputs[i];
      memory.inputs.push_back(
          {reinterpret_cast<std::byte*>(from[i].data()), x.shape, x.dtype, x.layout});
      memory.outputs.push_back(
          {reinterpret_cast<std::byte*>(to[i].data()), y.shape, y.dtype, y.layout});
    }
    const auto kernel = backend->MakeKernel(spec);
    kernel->Bind(memory);
    kernel->Run({});
  };
  run(narrows, wide, rounded);
  run(widens, rounded, back);
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t j = 0; j < sizes[i]; ++j) {
      ASSERT_EQ(back[i][j], static_cast<float>(Narrow(wide[i][j]))) << sizes[i] << " " << j;
    }
  }
}

TEST(Casts, CastManyTensorsAtOnce) {
  ExpectCasts<Bf16>(DType::kBF16);
  ExpectCasts<Fp16>(DType::kF16);
}

TEST(Casts, SupportOneTypeToOneOtherOnly) {
  const auto backend = testing::MakeEmulatedCudaBackend(1);
  const TensorSpec x{.shape = {3}, .layout = Layout::RowMajor()};
  TensorSpec bf16 = x, fp16 = x;
  bf16.dtype = DType::kBF16, fp16.dtype = DType::kF16;
  const auto supports = [&](std::vector<TensorSpec> from, std::vector<TensorSpec> to) {
    return backend->Supports({op::kCasts, {}, std::move(from), std::move(to)});
  };
  EXPECT_TRUE(supports({x, x}, {bf16, bf16}));
  EXPECT_FALSE(supports({x, x}, {bf16, fp16}));
  EXPECT_FALSE(supports({x, bf16}, {bf16, bf16}));
  EXPECT_FALSE(supports({x, x}, {bf16}));
  EXPECT_FALSE(supports({x}, {x}));
}

// cuDNN returns gradients of filters in 16 bits, and kCasts casts many of them at once. If channels
// were padded, the kernel itself casts. Depthwise gradients are fp32, since their kernel is our
// own.
TEST(Casts, GradientsOfFiltersMayBeCastLater) {
  const auto may_wait = [](const ConvSizes& sizes) {
    OpSpec spec = testing::Conv2dBackwardFilterSpec(sizes);
    spec.inputs[0].dtype = spec.inputs[1].dtype = DType::kBF16;
    EXPECT_TRUE(SupportsTypes(spec, Device()));
    spec.outputs[0].dtype = DType::kBF16;
    return SupportsTypes(spec, Device());
  };
  EXPECT_TRUE(may_wait(Conv({2, 8, 9, 9}, 16, 3)));
  EXPECT_FALSE(may_wait(Conv({2, 3, 9, 9}, 16, 3)));
  EXPECT_FALSE(may_wait(Conv({2, 8, 9, 9}, 8, 3, {.groups = 8})));
}

}  // namespace
}  // namespace carole::cuda
