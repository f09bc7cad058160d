#include "io/pipeline/synthetic_batches.h"

#include <algorithm>

#include "tests/io/pipeline/small_mnist.h"

namespace carole::io {
namespace {

TEST(SyntheticBatches, RepeatsOneBatchForever) {
  const auto source = MakeSyntheticBatches(
      {.local_batch = 4, .height = 3, .width = 5, .num_classes = 7, .seed = 1});
  const BatchCopy first = Copy(*source->Next());
  const BatchCopy second = Copy(*source->Next());
  EXPECT_EQ(first.images.size(), 4u * 3 * 5 * 3);
  EXPECT_EQ(first.images, second.images);
  EXPECT_EQ(first.labels, second.labels);
  EXPECT_EQ(second.batch.epoch, 1);
  EXPECT_EQ(second.batch.next_epoch, 2);
  EXPECT_EQ(second.batch.global_valid, 4);
  for (int32_t label : first.labels) EXPECT_TRUE(label >= 0 && label < 7);
}

TEST(SyntheticBatches, CanHoldBytes) {
  const auto source = MakeSyntheticBatches(
      {.local_batch = 4, .height = 30, .width = 50, .dtype = DType::kU8, .num_classes = 7});
  const Batch* batch = source->Next();
  EXPECT_TRUE(batch->images.empty());
  EXPECT_EQ(batch->pixels.size(), 4u * 30 * 50 * 3);
  const auto [least, largest] = std::minmax_element(batch->pixels.begin(), batch->pixels.end());
  EXPECT_EQ(*least, 0);
  EXPECT_EQ(*largest, 255);
}

}  // namespace
}  // namespace carole::io
