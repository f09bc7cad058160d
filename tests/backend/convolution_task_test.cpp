#include "src/backend/cuda/convolution_task.h"

#include <gtest/gtest.h>

#include <functional>

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

// Of 3 channels: ResNet's and MobileNet's with a stride of 2, VGG's with 1.
TEST(ConvolutionTask, FirstLayersLieInBlocks) {
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

// Inception's: outputs cannot be paired.
TEST(ConvolutionTask, OfOddWidthOnlyPixelsLieInBlocks) {
  const ConvSizes sizes = testing::InceptionStem(8);
  for (const OpSpec& spec : {Conv2dSpec(sizes), Conv2dBackwardFilterSpec(sizes)})
    ExpectTask(TaskOf(spec), {8, 16, 150, 150}, {32, 16, 2, 2}, {8, 32, 149, 149});
}

TEST(ConvolutionTask, OthersLieAsTheyDo) {
  const ConvSizes first = testing::Conv({8, 3, 32, 32}, 8, 3, {.padding = testing::Around(1)});
  ExpectTask(TaskOf(Conv2dSpec(first), DType::kF32), first.x, first.w(), first.y());
  ConvSizes later = first;
  later.x[1] = 8;
  for (const OpSpec& spec :
       {Conv2dSpec(later), Conv2dBackwardDataSpec(later), Conv2dBackwardFilterSpec(later)})
    ExpectTask(TaskOf(spec), later.x, later.w(), later.y());
  EXPECT_FALSE(TaskOf(Conv2dBackwardDataSpec(first)).in_blocks());
}

// VGG's second layer: its data's gradient and wider ones stay; so does what is odd, strided or
// fp32.
TEST(ConvolutionTask, NarrowLayersMayBeInPairsOfOutputs) {
  const ConvSizes conv1_2 =
      testing::Conv({8, 64, 224, 224}, 64, 3, {.padding = testing::Around(1)});
  const ConvolutionTask task = TaskOf(Conv2dSpec(conv1_2));
  ASSERT_TRUE(task.FitsPairs());
  ExpectTask(task.InPairs(), conv1_2.x, {128, 64, 3, 4}, {8, 128, 224, 112});
  const ConvolutionTask gradient = TaskOf(Conv2dBackwardFilterSpec(conv1_2));
  ASSERT_TRUE(gradient.FitsPairs());
  ExpectTask(gradient.InPairs(), conv1_2.x, {128, 64, 3, 4}, {8, 128, 224, 112});
  EXPECT_EQ(task.InPairs().a.stride_w, 2);
  EXPECT_EQ(task.InPairs().a.stride_h, 1);
  const auto fits = [&](const std::function<void(ConvSizes&)>& change) {
    ConvSizes sizes = conv1_2;
    change(sizes);
    return TaskOf(Conv2dSpec(sizes)).FitsPairs();
  };
  EXPECT_TRUE(fits([](ConvSizes& s) { s.attributes.padding = {0, 0, 2, 2}; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.k = 128; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.x[3] = 223; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.attributes.stride_w = 2; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.attributes.groups = 2; }));
  EXPECT_FALSE(fits([](ConvSizes& s) { s.x[1] = 3; }));
  EXPECT_FALSE(TaskOf(Conv2dSpec(conv1_2), DType::kF32).FitsPairs());
  EXPECT_FALSE(TaskOf(Conv2dBackwardDataSpec(conv1_2)).FitsPairs());
}

TEST(ConvolutionTask, FiltersOverTheWholeImageAreProducts) {
  const ConvSizes fc6 = testing::Conv({8, 512, 7, 7}, 4096, 7);
  ExpectTask(TaskOf(Conv2dSpec(fc6)), {8, 25088, 1, 1}, {4096, 25088, 1, 1}, {8, 4096, 1, 1});
}

}  // namespace
}  // namespace carole::cuda
