#include "io/sample_reader.h"

#include <sys/resource.h>

#include "tests/io/damage.h"

namespace carole::io {
namespace {

// Restores what a process may open.
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

TEST(SampleReader, OpensMoreShardsThanAProcessIsFirstAllowed) {
  const TemporaryFolder folder;
  constexpr int kShards = 100;
  RecordIndexOptions shards;
  for (int i = 0; i < kShards; ++i) {
    shards.shards.push_back(folder / fmt::format("train-{:05}-of-{:05}", i, kShards));
    WriteText(shards.shards.back(), Records({GreyExample(i, i % 10)}));
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

}  // namespace
}  // namespace carole::io
