#include "tests/io/compress.h"
#include "tests/io/pipeline/small_mnist.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

// Four of the 23 records are bad: 3 has a wrong checksum, 8 no label, 14 a GIF, 20 a label out of
// range.
class BadRecordsTest : public PipelineTest {
 protected:
  BadRecordsTest() {
    std::vector<std::string> examples = Examples();
    ExampleBuilder no_label;
    no_label.Add("image/encoded", "x");
    examples[8] = no_label.Finish();
    ExampleBuilder gif;
    gif.Add("image/encoded", "GIF89a");
    gif.Add("image/class/label", int64_t{1});
    examples[14] = gif.Finish();
    examples[20] = GrayExample(20, 100);
    DamagedBytes file{Records(examples)};
    file.FlipBit(Records({examples.begin(), examples.begin() + 3}).size() + 40, 3);
    WriteText(File(), file.bytes);
  }

  PipelineOptions Tolerant(int64_t max_bad_records) const {
    PipelineOptions options = Options();
    options.max_bad_records = max_bad_records;
    return options;
  }
};

TEST_F(BadRecordsTest, AreSkippedAndCountedOnAnyNumberOfRanks) {
  for (const auto& [size, dtype] :
       {std::pair(1, DType::kF32), {2, DType::kF32}, {3, DType::kF32}, {2, DType::kU8}}) {
    EpochCounts sum;
    std::map<int, int> seen;
    for (int rank = 0; rank < size; ++rank) {
      PipelineOptions options = Tolerant(4);
      options.rank = rank;
      options.size = size;
      options.dtype = dtype;
      const auto source = MakePipeline(options);
      EpochCounts last;
      for (const Batch* batch = source->Next(); batch->epoch == 0; batch = source->Next()) {
        last = batch->counts;
        EXPECT_LE(batch->valid, 4);
        for (int64_t row = 0; row < batch->valid; ++row) {
          ++seen[RecordOf(*batch, row)];
          EXPECT_EQ(batch->labels[row], RecordOf(*batch, row) % 10);
        }
      }
      sum.seen += last.seen;
      sum.hash += last.hash;
      for (int fault = 0; fault < kNumRecordFaults; ++fault)
        sum.skipped[fault] += last.skipped[fault];
      EXPECT_EQ(source->ExpectedCounts(0).seen, kNumRecords);
      if (rank + 1 == size) {
        EXPECT_EQ(sum.hash, source->ExpectedCounts(0).hash);
      }
    }
    EXPECT_EQ(sum.seen, kNumRecords - 4);
    EXPECT_EQ(sum.skipped, (std::array<int64_t, 3>{1, 2, 1}));
    EXPECT_EQ(seen.size(), size_t{kNumRecords - 4});
    for (int bad : {3, 8, 14, 20}) EXPECT_FALSE(seen.contains(bad));
    for (auto [record, count] : seen) EXPECT_EQ(count, 1) << record;
  }
}

// All rows are compared, also those that failed and those that fill up the last batch.
TEST_F(BadRecordsTest, BatchesDoNotDependOnThreadsAndEarlierBatches) {
  for (const bool mixes : {false, true}) {
    SCOPED_TRACE(mixes);
    PipelineOptions one = WithRandomness(Tolerant(4)), many = WithRandomness(Tolerant(4));
    if (mixes)
      one.augmentations.batches = many.augmentations.batches = {{"mix", std::make_shared<Mix>()}};
    one.threads = one.depth = 1;
    many.threads = 3;
    const auto a = MakePipeline(one), b = MakePipeline(many);
    for (int i = 0; i < 30; ++i) {
      const Batch &x = *a->Next(), &y = *b->Next();
      ASSERT_EQ(Copy(x).images, Copy(y).images) << "batch " << i;
      ASSERT_TRUE(std::ranges::equal(x.soft_labels, y.soft_labels)) << "batch " << i;
    }
  }
}

TEST_F(BadRecordsTest, AreLimitedPerEpoch) {
  const auto source = MakePipeline(Tolerant(4));
  int64_t batches = 0;
  for (const Batch* batch = source->Next(); batch->epoch < 3; batch = source->Next()) ++batches;
  EXPECT_EQ(batches, 3 * 6);
}

TEST_F(BadRecordsTest, TruncatedCompressedShardsAreSkipped) {
  const std::string compressed = Compress(Records(Examples()), 31);
  WriteText(File(), compressed.substr(0, compressed.size() * 3 / 4));
  EXPECT_THROW(MakePipeline(Options()), DataError);
  PipelineOptions options = Tolerant(1);
  options.repeat = false;
  const auto source = MakePipeline(options);
  EpochCounts last;
  while (const Batch* batch = source->Next()) last = batch->counts;
  EXPECT_EQ(last.skipped[0], 1);
  EXPECT_EQ(last.seen, source->num_samples() - 1);
  EXPECT_GT(last.seen, 0);
}

TEST_F(BadRecordsTest, OneAboveTheLimitEndsTheRun) {
  PipelineOptions options = Tolerant(2);
  options.shuffle = options.repeat = false;
  const auto source = MakePipeline(options);
  for (int batch = 0; batch < 3; ++batch) EXPECT_NE(source->Next(), nullptr);
  const std::string text = TextOf<DataError>([&] { source->Next(); });
  EXPECT_THAT(text, HasSubstr(File() + ": record 14 at byte "));
  EXPECT_THAT(
      text,
      HasSubstr("got a GIF, want a JPEG or a PNG; convert it; this is bad record 3 of the epoch, "
                "\x1f$(max_bad_records)=2"));
  EXPECT_EQ(TextOf<DataError>([&] { source->Next(); }), text);
}

TEST_F(BadRecordsTest, DamagedHeaderAndTruncatedTailAreSkipped) {
  DamagedBytes file{Records(Examples())};
  file.FlipBit(Records({Examples()[0]}).size() + 2);  // length of record 1
  file.ShrinkSize(30);                                // end of record 22
  WriteText(File(), file.bytes);
  EXPECT_THAT(TextOf<DataError>([&] { MakePipeline(Options()); }), HasSubstr("record 1 at byte"));
  const auto source = MakePipeline(Tolerant(2));
  EXPECT_EQ(source->num_samples(), kNumRecords);
  const Batch* batch = source->Next();
  while (batch->next_epoch == 0) batch = source->Next();
  EXPECT_EQ(batch->counts.seen, kNumRecords - 2);
  EXPECT_EQ(batch->counts.skipped, (std::array<int64_t, 3>{2, 0, 0}));
}

}  // namespace
}  // namespace carole::io
