#include "io/pipeline/pipeline.h"

#include <algorithm>
#include <map>

#include "io/preprocessing/preprocessing.h"
#include "tests/io/damage.h"
#include "tests/io/pipeline/small_mnist.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

TEST_F(PipelineTest, EachEpochHasEachRecordOnceWithItsLabel) {
  const auto source = MakePipeline(Options());
  EXPECT_EQ(source->num_samples(), kNumRecords);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<int, int> seen;
    for (int64_t position = 0; position < kNumRecords; position += 4) {
      const Batch* batch = source->Next();
      ASSERT_EQ(batch->epoch, epoch);
      EXPECT_EQ(batch->first_sample, position);
      EXPECT_EQ(batch->valid, std::min<int64_t>(4, kNumRecords - position));
      EXPECT_EQ(batch->global_valid, batch->valid);
      for (int64_t row = 0; row < 4; ++row)
        EXPECT_EQ(batch->labels[row], RecordOf(*batch, row) % 10);
      for (int64_t row = 0; row < batch->valid; ++row) ++seen[RecordOf(*batch, row)];
      const bool last = position + 4 >= kNumRecords;
      EXPECT_EQ(batch->next_epoch, last ? epoch + 1 : epoch);
      EXPECT_EQ(batch->next_position, last ? 0 : position + 4);
    }
    EXPECT_EQ(seen.size(), size_t{kNumRecords});
    for (auto [record, count] : seen) EXPECT_EQ(count, 1) << record;
  }
  EXPECT_GE(source->counters().images, 3 * kNumRecords);
  EXPECT_GT(source->counters().decode_ms, 0);
}

TEST_F(PipelineTest, OnePassEndsWithNullptr) {
  PipelineOptions options = Options();
  options.shuffle = options.repeat = false;
  const auto source = MakePipeline(options);
  int next = 0;
  while (const Batch* batch = source->Next()) {
    for (int64_t row = 0; row < batch->valid; ++row) EXPECT_EQ(RecordOf(*batch, row), next++);
  }
  EXPECT_EQ(next, kNumRecords);
  EXPECT_EQ(source->Next(), nullptr);
}

TEST_F(PipelineTest, AugmentationsDrawNumbersOfTheirOwn) {
  PipelineOptions plain = Options(), brighter = Options();
  brighter.augmentations.images = {{"brighten", std::make_shared<Brighten>()}};
  PipelineOptions twice = brighter;
  twice.augmentations.images.push_back({"other", std::make_shared<Brighten>()});
  const auto a = MakePipeline(plain), b = MakePipeline(brighter), c = MakePipeline(twice);
  const BatchCopy x = Copy(*a->Next()), y = Copy(*b->Next()), z = Copy(*c->Next());
  const float first = y.images[0] - x.images[0], second = z.images[0] - y.images[0];
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  EXPECT_GT(std::abs(first - second), 1e-4);
  EXPECT_GT(std::abs(y.images[784] - x.images[784] - first), 1e-4);  // another record
  EXPECT_NEAR(y.images[300] - x.images[300], first, 1e-6);
}

TEST_F(PipelineTest, BatchTransformsGetImagesAndOneHotLabels) {
  PipelineOptions options = Options();
  options.augmentations.batches = {{"mix", std::make_shared<Mix>()}};
  const auto plain = MakePipeline(Options()), mixed = MakePipeline(options);
  for (int i = 0; i < 9; ++i) {
    const BatchCopy x = Copy(*plain->Next());
    EXPECT_TRUE(x.batch.soft_labels.empty());
    const Batch& y = *mixed->Next();
    ASSERT_EQ(y.soft_labels.size(), 40u);
    Rng rng = AugmentationRng(5, "mix", y.epoch, y.first_sample);
    const float part = rng.NextFloat();
    EXPECT_EQ(x.labels, std::vector<int32_t>(y.labels.begin(), y.labels.end()));
    for (int row = 0; row < 4; ++row) {
      EXPECT_NEAR(y.images[row * 784],
                  part * x.images[row * 784] + (1 - part) * x.images[(3 - row) * 784], 1e-6);
      float want = part;
      if (x.labels[3 - row] == x.labels[row]) want = 1;
      EXPECT_NEAR(y.soft_labels[row * 10 + x.labels[row]], want, 1e-6);
      float sum = 0;
      for (int k = 0; k < 10; ++k) sum += y.soft_labels[row * 10 + k];
      EXPECT_NEAR(sum, 1, 1e-6);
    }
  }
}

TEST_F(PipelineTest, NumberOfThreadsAndDepthChangeNothing) {
  PipelineOptions one = WithRandomness(Options());
  one.threads = one.depth = 1;
  PipelineOptions many = WithRandomness(Options());
  many.threads = 3;
  const auto a = MakePipeline(one);
  const auto b = MakePipeline(many);
  for (int i = 0; i < 40; ++i) {
    const BatchCopy x = Copy(*a->Next());
    const BatchCopy y = Copy(*b->Next());
    ASSERT_EQ(x.images, y.images) << "batch " << i;
    ASSERT_EQ(x.labels, y.labels);
  }
}

TEST_F(PipelineTest, BatchStaysValidThroughOneMoreCall) {
  PipelineOptions options = WithRandomness(Options());
  options.depth = 1;
  const auto once = MakePipeline(options), again = MakePipeline(options);
  Batch before = *once->Next();
  for (int i = 0; i < 20; ++i) {
    const BatchCopy want = Copy(*again->Next());
    const Batch next = *once->Next();
    const BatchCopy got = Copy(before);
    ASSERT_EQ(got.images, want.images) << "batch " << i;
    ASSERT_EQ(got.labels, want.labels) << "batch " << i;
    before = next;
  }
}

TEST_F(PipelineTest, RanksTogetherSeeTheBatchesOfOneRank) {
  PipelineOptions alone = WithRandomness(Options());
  alone.local_batch = 8;
  PipelineOptions left = WithRandomness(Options());
  left.size = 2;
  PipelineOptions right = left;
  right.rank = 1;
  const auto whole = MakePipeline(alone);
  const auto first = MakePipeline(left);
  const auto second = MakePipeline(right);
  for (int i = 0; i < 7; ++i) {
    const BatchCopy want = Copy(*whole->Next());
    BatchCopy got = Copy(*first->Next());
    const BatchCopy rest = Copy(*second->Next());
    got.images.insert(got.images.end(), rest.images.begin(), rest.images.end());
    got.labels.insert(got.labels.end(), rest.labels.begin(), rest.labels.end());
    ASSERT_EQ(got.images, want.images) << "batch " << i;
    ASSERT_EQ(got.labels, want.labels);
    EXPECT_EQ(got.batch.valid + rest.batch.valid, want.batch.valid);
    EXPECT_EQ(rest.batch.first_sample, want.batch.first_sample + 4);
    EXPECT_EQ(rest.batch.global_valid, want.batch.global_valid);
    EXPECT_EQ(rest.batch.next_position, want.batch.next_position);
  }
}

TEST_F(PipelineTest, ResumesAtAnyBatch) {
  const auto whole = MakePipeline(WithRandomness(Options()));
  for (int i = 0; i < 14; ++i) {
    const BatchCopy at = Copy(*whole->Next());
    PipelineOptions options = WithRandomness(Options());
    options.start_epoch = at.batch.next_epoch;
    options.start_position = at.batch.next_position;
    const auto resumed = MakePipeline(options);
    const auto reference = MakePipeline(WithRandomness(Options()));
    for (int skip = 0; skip <= i; ++skip) reference->Next();
    for (int next = 0; next < 3; ++next) {
      const BatchCopy want = Copy(*reference->Next());
      const BatchCopy got = Copy(*resumed->Next());
      ASSERT_EQ(got.images, want.images);
      ASSERT_EQ(got.batch.epoch, want.batch.epoch);
      ASSERT_EQ(got.batch.first_sample, want.batch.first_sample);
    }
  }
}

TEST_F(PipelineTest, CanBeDestroyedAfterAnyNumberOfBatches) {
  for (int batches = 0; batches < 12; ++batches) {
    const auto source = MakePipeline(Options());
    for (int i = 0; i < batches; ++i) source->Next();
  }
}

// Runs one ordered pass. The error must arrive at the batch of the bad record, not before, and
// again at the next call. Returns its text.
std::string ErrorInBatch(PipelineOptions options, int good_batches) {
  options.shuffle = options.repeat = false;
  const auto source = MakePipeline(options);
  for (int i = 0; i < good_batches; ++i) EXPECT_NE(source->Next(), nullptr);
  const std::string text = TextOf<DataError>([&] { source->Next(); });
  EXPECT_EQ(TextOf<DataError>([&] { source->Next(); }), text);
  return text;
}

TEST_F(PipelineTest, RefusesALabelOutOfRange) {
  std::vector<std::string> examples = Examples();
  examples[9] = GrayExample(9, 10);
  examples[11] = GrayExample(11, -1);
  WriteExamples(examples);
  const uint64_t offset = Records({examples.begin(), examples.begin() + 9}).size();
  EXPECT_EQ(
      ErrorInBatch(Options(), 2),
      fmt::format("[io.tfrecord] {}: record 9 at byte {}: label out of range: got 10, want 0 to 9 "
                  "(10 classes, \x1f$(labels_offset)=0)",
                  File(), offset));
}

TEST_F(PipelineTest, LabelsOffsetIsSubtracted) {
  PipelineOptions options = Options();
  options.labels_offset = 1;  // record 0 has label 0, which is now too small
  EXPECT_THAT(ErrorInBatch(options, 0),
              HasSubstr("record 0 at byte 0: label out of range: got 0, want 1 to 10"));
  std::vector<std::string> examples = Examples();
  examples[0] = GrayExample(0, 10);
  for (int i : {10, 20}) examples[i] = GrayExample(i, 10);
  WriteExamples(examples);
  options.shuffle = false;
  EXPECT_EQ(MakePipeline(options)->Next()->labels[0], 9);
}

TEST_F(PipelineTest, ErrorNamesTheDamagedRecord) {
  DamagedBytes file{Records(Examples())};
  const uint64_t offset = Records({Examples()[0], Examples()[1]}).size();
  file.FlipBit(offset + 40, 3);
  WriteText(File(), file.bytes);
  EXPECT_THAT(ErrorInBatch(Options(), 0),
              HasSubstr(fmt::format("{}: record 2 at byte {}: data checksum mismatch: got 0x",
                                    File(), offset)));
}

TEST_F(PipelineTest, RefusesExamplesWithoutImageOrLabel) {
  const auto error_of = [&](const std::string& example) {
    WriteExamples({example});
    return ErrorInBatch(Options(), 0);
  };
  const std::string where = "[io.tfrecord] " + File() + ": record 0 at byte 0: ";
  EXPECT_EQ(error_of("no protobuf").substr(0, where.size()), where);
  ExampleBuilder no_image;
  no_image.Add("image/class/label", int64_t{1});
  EXPECT_EQ(error_of(no_image.Finish()),
            where + "key missing: got no image/encoded; is this a record of images?");
  ExampleBuilder no_label;
  no_label.Add("image/encoded", "x");
  EXPECT_EQ(error_of(no_label.Finish()), where + "key missing: got no image/class/label");
  no_label.Add("image/class/label", int64_t{1});
  EXPECT_THAT(error_of(no_label.Finish()), HasSubstr(where + "image: unknown format: got 1 bytes"));
}

TEST_F(PipelineTest, ResumedEpochCountsOnlyItsRest) {
  PipelineOptions options = Options();
  options.start_epoch = 2;
  options.start_position = 9;
  const auto source = MakePipeline(options);
  EXPECT_EQ(source->ExpectedCounts(2).seen, kNumRecords - 9);
  for (int64_t epoch : {2, 3}) {
    const Batch* batch = source->Next();
    while (batch->next_epoch == epoch) batch = source->Next();
    EXPECT_EQ(batch->counts.seen, source->ExpectedCounts(epoch).seen);
    EXPECT_EQ(batch->counts.hash, source->ExpectedCounts(epoch).hash);
  }
  EXPECT_EQ(source->ExpectedCounts(3).seen, kNumRecords);
}

TEST_F(PipelineTest, BatchesNameTheRecordsThatCount) {
  const auto source = MakePipeline(Options());
  for (int i = 0; i < 9; ++i) {
    const Batch* batch = source->Next();
    ASSERT_EQ(std::ssize(batch->records), batch->valid);
    for (int64_t row = 0; row < batch->valid; ++row)
      EXPECT_EQ(batch->records[row], RecordOf(*batch, row));
  }
}

// So a run notices that its data was replaced by as many other records.
TEST_F(PipelineTest, AHashIsThatOfShardsAndOffsets) {
  const uint64_t hash = MakePipeline(Options())->ExpectedCounts(0).hash;
  EXPECT_EQ(MakePipeline(Options())->ExpectedCounts(7).hash, hash);
  std::vector<std::string> examples = Examples();
  ExampleBuilder longer;
  longer.Add("comment", std::string("the records after this one begin later"));
  examples[0] += longer.Finish();
  WriteExamples(examples);
  const io::EpochCounts counts = MakePipeline(Options())->ExpectedCounts(0);
  EXPECT_EQ(counts.seen, kNumRecords);
  EXPECT_NE(counts.hash, hash);
}

TEST_F(PipelineTest, BlockShuffleSeesEachRecordOnce) {
  PipelineOptions options = Options();
  options.shuffle_block_records = 2;
  const auto source = MakePipeline(options);
  std::map<int, int> seen;
  std::vector<int> order;
  const Batch* batch = source->Next();
  for (; batch->epoch == 0; batch = source->Next()) {
    for (int64_t row = 0; row < batch->valid; ++row) order.push_back(RecordOf(*batch, row));
  }
  for (int record : order) ++seen[record];
  EXPECT_EQ(seen.size(), size_t{kNumRecords});
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(PipelineTest, RefusesSizesThatThePreprocessingCannotProduce) {
  PipelineOptions options = Options();
  options.preprocessing = &FindPreprocessing("vgg");
  options.height = options.width = 299;
  EXPECT_THAT(TextOf<UsageError>([&] { MakePipeline(options); }),
              HasSubstr("vgg: image size too large for this preprocessing: got 299x299"));
}

// Bounding boxes are read only on request.
TEST_F(PipelineTest, RefusesBadBoundingBoxes) {
  const auto with_boxes = [](std::vector<float> ymin, std::vector<float> ymax) {
    ExampleBuilder example;
    std::vector<uint8_t> pixels(64 * 64);
    example.Add("image/encoded", EncodePng({pixels.data(), 64, 64, 1}));
    example.Add("image/class/label", int64_t{3});
    const std::vector<float> x = {0.25f};
    example.Add("image/object/bbox/ymin", std::span<const float>(ymin));
    example.Add("image/object/bbox/ymax", std::span<const float>(ymax));
    example.Add("image/object/bbox/xmin", std::span<const float>(x));
    example.Add("image/object/bbox/xmax", std::span<const float>(std::vector<float>{0.75f}));
    return example.Finish();
  };
  PipelineOptions options = Options();
  options.preprocessing = &FindPreprocessing("inception");
  options.use_bounding_boxes = true;
  WriteExamples({with_boxes({0.1f}, {0.9f})});
  EXPECT_EQ(MakePipeline(options)->Next()->labels[0], 3);
  WriteExamples({with_boxes({0.1f}, {1.5f})});
  EXPECT_THAT(
      ErrorInBatch(options, 0),
      HasSubstr(
          "record 0 at byte 0: image/object/bbox/ymin: box 0 outside the image: got 0.1 to 1.5"));
  WriteExamples({with_boxes({0.1f, 0.2f}, {0.9f})});
  EXPECT_THAT(ErrorInBatch(options, 0),
              HasSubstr("image/object/bbox/ymin: wrong number of boxes: got 2, want 1"));
  options.use_bounding_boxes = false;
  EXPECT_EQ(MakePipeline(options)->Next()->labels[0], 3);
}

TEST_F(PipelineTest, ReadsRawPixels) {
  ExampleBuilder example;
  example.Add("image/encoded", std::string(28 * 28, '\x40'));
  example.Add("image/format", "raw");
  example.Add("image/class/label", int64_t{3});
  example.Add("image/height", int64_t{28});
  example.Add("image/width", int64_t{28});
  WriteExamples({example.Finish()});
  const auto source = MakePipeline(Options());
  for (float v : source->Next()->images) EXPECT_EQ(v, -0.5f);
  example.Add("image/width", int64_t{27});
  WriteExamples({example.Finish()});
  EXPECT_THAT(ErrorInBatch(Options(), 0),
              HasSubstr("raw image of wrong size: got 784 bytes, want 28x27x1"));
}

// Some converters write height and width with other types. They matter for raw pixels only.
TEST_F(PipelineTest, IgnoresTheRecordedSizeOfImageFiles) {
  const std::vector<uint8_t> pixels(28 * 28, 0x40);
  ExampleBuilder example;
  example.Add("image/encoded", EncodePng({pixels.data(), 28, 28, 1}));
  example.Add("image/class/label", int64_t{3});
  example.Add("image/height", "28");
  example.Add("image/width", std::vector<float>{28});
  WriteExamples({example.Finish()});
  EXPECT_EQ(MakePipeline(Options())->Next()->labels[0], 3);
}

// MNIST records of TF-Slim: 28x28 if the record has no size, raw pixels if it has no format.
TEST_F(PipelineTest, RawPixelsOfMnistNeedNoSize) {
  ExampleBuilder example;
  example.Add("image/encoded", std::string(28 * 28, '\x40'));
  example.Add("image/class/label", int64_t{3});
  WriteExamples({example.Finish()});
  const auto source = MakePipeline(Options());
  for (float v : source->Next()->images) EXPECT_EQ(v, -0.5f);
  example.Add("image/encoded", std::string(28 * 28 - 1, '\x40'));
  WriteExamples({example.Finish()});
  EXPECT_THAT(ErrorInBatch(Options(), 0), HasSubstr("unknown format: got 783 bytes"));
  example.Add("image/format", "raw");
  WriteExamples({example.Finish()});
  EXPECT_THAT(ErrorInBatch(Options(), 0),
              HasSubstr("raw image of wrong size: got 783 bytes, want 28x28x1"));
}

TEST_F(PipelineTest, EmptyAndTruncatedShardsFailAtTheStart) {
  WriteText(File(), "");
  EXPECT_THAT(TextOf<DataError>([&] { MakePipeline(Options()); }),
              HasSubstr(File() + ": the file is empty"));
  WriteText(File(), Records(Examples()).substr(0, 1000));
  EXPECT_THAT(TextOf<DataError>([&] { MakePipeline(Options()); }),
              HasSubstr(": truncated record: got "));
}

// The net normalizes bytes to what the preprocessing would have computed. The result is exact for
// integer pixels; otherwise the difference is at most half of a pixel level.
TEST_F(PipelineTest, NormalizedBytesEqualTheFloats) {
  for (const char* name : {"lenet", "mnist_keras", "vgg", "inception", "imagenet_resnet"}) {
    PipelineOptions options = Options();
    options.preprocessing = &FindPreprocessing(name);
    const auto floats = MakePipeline(options);
    options.dtype = DType::kU8;
    const auto bytes = MakePipeline(options);
    const PreprocessingEntry& entry = FindPreprocessing(name);
    const auto& [subtract, multiply] = NormalizationOf(entry);
    const float bound = entry.has_integer_pixels ? 0 : 0.5001f * multiply;
    for (int i = 0; i < 8; ++i) {
      const Batch *want = floats->Next(), *got = bytes->Next();
      ASSERT_TRUE(got->images.empty());
      ASSERT_EQ(got->pixels.size(), want->images.size());
      EXPECT_THAT(got->labels, testing::ElementsAreArray(want->labels));
      for (size_t k = 0; k < got->pixels.size(); ++k) {
        const float value = (static_cast<float>(got->pixels[k]) - subtract[0]) * multiply;
        ASSERT_LE(std::abs(value - want->images[k]), bound) << name << " " << i << " " << k;
      }
    }
  }
}

TEST_F(PipelineTest, StandardizedImagesCannotBeBytes) {
  PipelineOptions options = WithRandomness(Options());
  options.dtype = DType::kU8;
  EXPECT_THAT(TextOf<UsageError>([&] { MakePipeline(options); }),
              HasSubstr("\x1f$(input_dtype): the preprocessing cifarnet standardizes each image"));
}

}  // namespace
}  // namespace carole::io
