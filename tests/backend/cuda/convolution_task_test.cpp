#include "src/backend/cuda/convolution/convolution_task.h"

#include <gtest/gtest.h>

#include <functional>

#include "src/backend/cuda/convolution/image_convolution.h"
#include "tests/support/op_specs.h"

namespace carole::cuda {
namespace {

using testing::ConvSizes;

ConvolutionTask TaskOf(const OpSpec& plain, DType type = DType::kBF16) {
  const OpSpec spec = type == DType::kF32 ? plain : testing::InNarrow(plain, type);
  return ConvolutionTask::Of(spec).ForLibrary(false);
}

void ExpectTask(const ConvolutionTask& task, const Shape& x, const Shape& w, const Shape& y) {
  EXPECT_EQ(task.x, x);
  EXPECT_EQ(task.w, w);
  EXPECT_EQ(task.y, y);
}

// Layers with 3 input channels: ResNet's and MobileNet's have stride 2, VGG's has stride 1.
TEST(ConvolutionTask, FirstLayersUsePixelBlocks) {
  const ConvSizes resnet = testing::ResNetStem(8), vgg = testing::VggStem(8);
  ExpectTask(TaskOf(Conv2dSpec(resnet)), {8, 32, 115, 58}, {128, 32, 4, 3}, {8, 128, 112, 56});
  ExpectTask(TaskOf(Conv2dBackwardFilterSpec(resnet)), {8, 16, 115, 115}, {64, 16, 4, 4},
             {8, 64, 112, 112});
  ExpectTask(TaskOf(Conv2dSpec(vgg)), {8, 16, 226, 113}, {128, 16, 3, 2}, {8, 128, 224, 112});
  ExpectTask(TaskOf(Conv2dBackwardFilterSpec(vgg)), {8, 8, 226, 113}, {128, 8, 3, 2},
             {8, 128, 224, 112});
  ExpectTask(TaskOf(Conv2dSpec(testing::MobileNetStem(8))), {8, 32, 113, 57}, {64, 32, 2, 2},
             {8, 64, 112, 56});
}

// Inception's first layer has an odd output width, so outputs cannot be paired.
TEST(ConvolutionTask, OddOutputWidthsUsePixelBlocksWithSingleOutputs) {
  const ConvSizes sizes = testing::InceptionStem(8);
  for (const OpSpec& spec : {Conv2dSpec(sizes), Conv2dBackwardFilterSpec(sizes)})
    ExpectTask(TaskOf(spec), {8, 16, 150, 150}, {32, 16, 2, 2}, {8, 32, 149, 149});
}

TEST(ConvolutionTask, OtherLayersKeepTheirShapes) {
  const ConvSizes first = testing::Conv({8, 3, 32, 32}, 8, 3, {.padding = testing::Around(1)});
  ExpectTask(TaskOf(Conv2dSpec(first), DType::kF32), first.x, first.w(), first.y());
  ConvSizes later = first;
  later.x[1] = 8;
  for (const OpSpec& spec :
       {Conv2dSpec(later), Conv2dBackwardDataSpec(later), Conv2dBackwardFilterSpec(later)})
    ExpectTask(TaskOf(spec), later.x, later.w(), later.y());
  EXPECT_FALSE(TaskOf(Conv2dBackwardDataSpec(first)).uses_pixel_blocks());
}

// VGG's second layer can pair outputs. Its gradients cannot, nor can layers with more filters, an
// odd width, a stride, groups, fp32 or without a bias.
TEST(ConvolutionTask, LayersWithFewFiltersCanPairOutputs) {
  const ConvSizes conv1_2 =
      testing::Conv({8, 64, 224, 224}, 64, 3, {.padding = testing::Around(1)}, {.bias = true});
  const ConvolutionTask task = TaskOf(Conv2dSpec(conv1_2));
  ASSERT_TRUE(task.CanPairOutputs());
  ExpectTask(task.WithPairedOutputs(), conv1_2.x, {128, 64, 3, 4}, {8, 128, 224, 112});
  EXPECT_EQ(task.WithPairedOutputs().a.stride_w, 2);
  EXPECT_EQ(task.WithPairedOutputs().a.stride_h, 1);
  const auto fits = [&](const std::function<void(ConvSizes&)>& change) {
    ConvSizes sizes = conv1_2;
    change(sizes);
    return TaskOf(Conv2dSpec(sizes)).CanPairOutputs();
  };
  EXPECT_TRUE(fits([](ConvSizes& s) { s.attributes.padding = {0, 0, 2, 2}; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.k = 128; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.x[3] = 223; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.attributes.stride_w = 2; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.attributes.groups = 2; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.x[1] = 3; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.bias = false; }));
  EXPECT_FALSE(TaskOf(Conv2dSpec(conv1_2), DType::kF32).CanPairOutputs());
  EXPECT_FALSE(TaskOf(Conv2dBackwardDataSpec(conv1_2)).CanPairOutputs());
  EXPECT_FALSE(TaskOf(Conv2dBackwardFilterSpec(conv1_2)).CanPairOutputs());
}

TEST(ConvolutionTask, FiltersOverTheWholeImageAreMatrixProducts) {
  const ConvSizes fc6 = testing::Conv({8, 512, 7, 7}, 4096, 7);
  ExpectTask(TaskOf(Conv2dSpec(fc6)), {8, 25088, 1, 1}, {4096, 25088, 1, 1}, {8, 4096, 1, 1});
}

// VGG's, Inception's and MobileNet's first layers, but not ResNet's, which has 147 taps. In 16
// bits, with a multiple of 8 filters, on GPUs with tensor cores of compute capability 8.0.
TEST(ImageConvolution, SupportsFirstLayersWithFewTaps) {
  Device device;
  device.capability = 90;
  const auto fits = [&](const ConvSizes& sizes, DType type = DType::kBF16) {
    std::optional<bool> both;
    for (const OpSpec& plain : {Conv2dSpec(sizes), Conv2dBackwardFilterSpec(sizes)}) {
      const OpSpec spec = type == DType::kF32 ? plain : testing::InNarrow(plain, type);
      const bool one = ImageConvolution::Of(spec, device).has_value();
      EXPECT_EQ(both.value_or(one), one) << "forward and the gradient of the filter differ";
      both = one;
    }
    return *both;
  };
  const ConvSizes vgg = testing::VggStem(8);
  EXPECT_TRUE(fits(vgg));
  EXPECT_TRUE(fits(vgg, DType::kF16));
  EXPECT_TRUE(fits(testing::InceptionStem(8)));
  EXPECT_TRUE(fits(testing::MobileNetStem(8)));
  EXPECT_TRUE(fits(testing::Conv({8, 1, 28, 28}, 32, 5, {.padding = testing::Around(2)})));
  EXPECT_FALSE(fits(testing::ResNetStem(8)));
  EXPECT_FALSE(fits(vgg, DType::kF32));
  const auto changed = [&](const std::function<void(ConvSizes&)>& change) {
    ConvSizes sizes = vgg;
    change(sizes);
    return fits(sizes);
  };
  EXPECT_FALSE(changed([](ConvSizes& s) { s.k = 60; }));
  EXPECT_FALSE(changed([](ConvSizes& s) { s.x[1] = 4; })) << "36 taps";
  EXPECT_FALSE(changed([](ConvSizes& s) { s.attributes.dilation = 2; }));
  EXPECT_FALSE(changed([](ConvSizes& s) { s.attributes.stride_w = 2; })) << "in one direction only";
  EXPECT_FALSE(changed([](ConvSizes& s) { s.attributes.stride_w = s.attributes.stride_h = 3; }));
  const OpSpec data = testing::InNarrow(Conv2dBackwardDataSpec(vgg), DType::kBF16);
  EXPECT_FALSE(ImageConvolution::Of(data, device));
  device.capability = 75;
  EXPECT_FALSE(fits(vgg));
}

}  // namespace
}  // namespace carole::cuda
