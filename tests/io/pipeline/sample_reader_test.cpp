#include "io/pipeline/sample_reader.h"

#include <sys/resource.h>

#include <cmath>

#include "tests/io/damage.h"

namespace carole::io {
namespace {

// Lowers the soft limit of open files, and restores it at the end.
class FileLimit {
 public:
  explicit FileLimit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = soft;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(SampleReader, OpensMoreShardsThanTheSoftLimitAllows) {
  const TemporaryFolder folder;
  constexpr int kShards = 100;
  RecordIndexOptions shards;
  for (int i = 0; i < kShards; ++i) {
    shards.shards.push_back(folder / fmt::format("train-{:05}-of-{:05}", i, kShards));
    WriteText(shards.shards.back(), Records({GrayExample(i, i % 10)}));
  }
  const FileLimit limit(64);
  const SampleReader reader({.dataset = &FindDataset("mnist"),
                             .preprocessing = &FindPreprocessing("lenet"),
                             .height = 28,
                             .width = 28,
                             .channels = 1,
                             .num_classes = 10},
                            LoadRecordIndex(shards));
  SampleReader::Scratch scratch;
  StageCounters counters;
  std::vector<float> image(28 * 28);
  for (int record = 0; record < kShards; ++record) {
    int32_t label = -1;
    reader.Read(record, 0, scratch, image, &label, counters);
    EXPECT_EQ(label, record % 10);
    EXPECT_EQ(std::lround(image[0] * 128 + 128), record);
  }
  EXPECT_EQ(counters.ToCounters().images, kShards);
  EXPECT_GT(counters.ToCounters().read_bytes, kShards * 100);
}

// A PNG of saturated colors, whose distortion clips them.
std::string ColorExample() {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 32 * 32 * 3; ++i) pixels.push_back(i % 7 < 3 ? 255 : i % 11 * 20);
  return PngExample({pixels.data(), 32, 32, 3}, 3);
}

std::vector<float> ReadInTraining(const std::filesystem::path& shard, int channels) {
  const SampleReader reader({.dataset = &FindDataset("cifar10"),
                             .preprocessing = &FindPreprocessing("inception"),
                             .training = true,
                             .height = 24,
                             .width = 24,
                             .channels = channels,
                             .num_classes = 10,
                             .seed = 5,
                             .fast_mode = false},
                            LoadRecordIndex({.shards = {shard}}));
  SampleReader::Scratch scratch;
  StageCounters counters;
  std::vector<float> image(static_cast<size_t>(reader.values_per_image()), NAN);
  int32_t label = -1;
  reader.Read(0, 0, scratch, image, &label, counters);
  EXPECT_EQ(label, 3);
  return image;
}

TEST(SampleReader, DistortsColorsBeforeConvertingToGray) {
  const TemporaryFolder folder;
  const std::filesystem::path shard = folder / "cifar10_train.tfrecord";
  WriteText(shard, Records({ColorExample()}));
  const std::vector<float> colors = ReadInTraining(shard, 3);
  const std::vector<float> gray = ReadInTraining(shard, 1);
  ASSERT_EQ(gray.size(), 24u * 24u);
  for (size_t i = 0; i < gray.size(); ++i) {
    const auto unit = [&](size_t c) { return colors[3 * i + c] / 2.0 + 0.5; };  // in [0, 1]
    const double luma = 0.2989 * unit(0) + 0.587 * unit(1) + 0.114 * unit(2);
    EXPECT_NEAR(gray[i], (luma - 0.5) * 2, 1e-6) << i;
  }
}

// Two shards hold the same image at the same position.
TEST(SampleReader, DrawsDependOnRecordAndEpoch) {
  const TemporaryFolder folder;
  RecordIndexOptions shards;
  for (const char* name : {"a", "b"}) {
    shards.shards.push_back(folder / name);
    WriteText(shards.shards.back(), Records({GrayExample(3, 4)}));
  }
  const SampleReader reader({.dataset = &FindDataset("mnist"),
                             .preprocessing = &FindPreprocessing("cifarnet"),
                             .training = true,
                             .height = 28,
                             .width = 28,
                             .channels = 1,
                             .num_classes = 10,
                             .seed = 5},
                            LoadRecordIndex(shards));
  SampleReader::Scratch scratch;
  StageCounters counters;
  const auto draw = [&](int64_t record, int64_t epoch) {
    std::vector<float> image(28 * 28);
    int32_t label = -1;
    reader.Read(record, epoch, scratch, image, &label, counters);
    return image;
  };
  const std::vector<float> first = draw(0, 0);
  EXPECT_EQ(draw(0, 0), first);
  EXPECT_NE(draw(0, 1), first);
  EXPECT_NE(draw(1, 0), first);
  EXPECT_NE(draw(1, 1), draw(0, 1));
}

}  // namespace
}  // namespace carole::io
