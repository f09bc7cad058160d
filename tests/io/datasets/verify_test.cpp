#include "io/datasets/verify.h"

#include <cmath>
#include <functional>

#include "io/datasets/drawing.h"
#include "io/datasets/image_example.h"
#include "io/image/jpeg_encode.h"
#include "src/core/files/crc32c.h"
#include "tests/io/compress.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class VerifyTest : public testing::Test {
 protected:
  VerifyReport Verify(const std::vector<std::string>& shards) {
    VerifyOptions options{.dataset = &FindDataset("mnist"), .num_classes = 10, .threads = 2};
    for (const std::string& bytes : shards) {
      options.shards.push_back(folder_ / fmt::format("shard-{}", options.shards.size()));
      WriteText(options.shards.back(), bytes);
    }
    return VerifyShards(options);
  }
  std::string Location(int record, size_t offset) const {
    return fmt::format("[io.tfrecord] {}/shard-0: record {} at byte {}: ", folder_.path(), record,
                       offset);
  }

  // Makes five good records and remembers their offsets.
  void SetUp() override {
    for (int i = 0; i < 5; ++i) {
      offsets_.push_back(good_.bytes.size());
      good_.bytes += Records({GrayExample(i, i)});
    }
  }

  TemporaryFolder folder_;
  DamagedBytes good_;
  std::vector<size_t> offsets_;
};

TEST_F(VerifyTest, CountsGoodRecords) {
  const VerifyReport report = Verify({good_.bytes, Records({GrayExample(77, 3)})});
  EXPECT_THAT(report.bad, IsEmpty());
  EXPECT_EQ(report.num_good, 6);
  EXPECT_THAT(report.class_counts,
              ElementsAre(Pair(0, 1), Pair(1, 1), Pair(2, 1), Pair(3, 2), Pair(4, 1)));
}

TEST_F(VerifyTest, LosesOneRecordToABadDataChecksum) {
  good_.FlipBit(offsets_[2] + 12 + 30);
  const VerifyReport report = Verify({good_.bytes});
  EXPECT_EQ(report.num_good, 4);
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_THAT(report.bad[0], HasSubstr(Location(2, offsets_[2]) + "data checksum mismatch"));
  good_.FlipBit(offsets_[2] + 12 + 30);
  good_.FlipBit(offsets_[3] - 1);  // in the stored checksum
  EXPECT_THAT(Verify({good_.bytes}).bad,
              ElementsAre(HasSubstr(Location(2, offsets_[2]) + "data checksum")));
}

TEST_F(VerifyTest, FindsTheNextRecordAfterABadLength) {
  for (const size_t byte : {size_t{0}, size_t{7}, size_t{9}}) {  // length, absurd length, checksum
    DamagedBytes damaged = good_;
    damaged.FlipBit(offsets_[1] + byte, 6);
    const VerifyReport report = Verify({damaged.bytes});
    EXPECT_EQ(report.num_good, 4) << byte;
    EXPECT_THAT(report.bad,
                ElementsAre(HasSubstr(Location(1, offsets_[1]) + "length checksum mismatch")));
  }
}

TEST_F(VerifyTest, HandlesAnAbsurdLengthWithAValidChecksum) {
  std::string header;
  AppendLittleEndian(header, uint64_t{1} << 62);
  AppendLittleEndian(header, MaskedCrc32c(header));
  const VerifyReport report = Verify({header + good_.bytes});
  EXPECT_THAT(
      report.bad,
      ElementsAre(HasSubstr("record 0 at byte 0: record too long: got 4611686018427387904")));
  EXPECT_EQ(report.num_good, 5);
}

TEST_F(VerifyTest, ReportsTruncatedAndEmptyFiles) {
  good_.ShrinkSize(3);
  const VerifyReport report = Verify({good_.bytes, "", Compress("", 31)});
  EXPECT_EQ(report.num_good, 4);
  EXPECT_THAT(report.bad, ElementsAre(HasSubstr(Location(4, offsets_[4]) + "truncated record"),
                                      HasSubstr("shard-1: the file is empty")));
  good_.bytes.resize(offsets_[4] + 5);
  EXPECT_THAT(Verify({good_.bytes}).bad,
              ElementsAre(HasSubstr(Location(4, offsets_[4]) + "truncated header: got 5 bytes")));
}

TEST_F(VerifyTest, CountsTruncatedCompressionAsOneBadRecord) {
  const std::string zipped = Compress(good_.bytes, 31);
  const VerifyReport report = Verify({zipped.substr(0, zipped.size() / 2)});
  EXPECT_THAT(report.bad,
              ElementsAre(testing::AllOf(HasSubstr("shard-0: record "), HasSubstr("near byte "))));
}

TEST_F(VerifyTest, NamesBothRecordsOfADuplicate) {
  const VerifyReport report =
      Verify({good_.bytes + good_.bytes.substr(offsets_[1], offsets_[2] - offsets_[1]),
              Records({GrayExample(2, 2)})});
  EXPECT_EQ(report.num_good, 5);
  EXPECT_THAT(
      report.bad,
      ElementsAre(
          HasSubstr(fmt::format("record 5 at byte {}: duplicate: the same bytes as record 1 at "
                                "byte {} of {}/shard-0",
                                good_.bytes.size(), offsets_[1], folder_.path())),
          HasSubstr("shard-1: record 0 at byte 0: duplicate: the same bytes as record 2")));
}

TEST_F(VerifyTest, RepairKeepsTheGoodRecords) {
  DamagedBytes damaged = good_;
  damaged.FlipBit(offsets_[1] + 20);
  damaged.FlipBit(offsets_[3]);
  WriteText(folder_ / "labels.txt", "0:zero\n");
  const VerifyReport report = Verify({damaged.bytes, good_.bytes.substr(0, 7)});
  EXPECT_EQ(report.num_bad, 3);
  WriteRepaired(report, folder_ / "clean", 2);
  EXPECT_EQ(ReadText(folder_ / "clean/shard-0"),
            Records({GrayExample(0, 0), GrayExample(2, 2), GrayExample(4, 4)}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "clean/shard-1"));
  EXPECT_EQ(ReadText(folder_ / "clean/labels.txt"), "0:zero\n");
  EXPECT_THAT(TextOf<UsageError>([&] { WriteRepaired(report, folder_.path(), 1); }),
              HasSubstr("this is the folder of the damaged records"));
}

// The copies are renumbered, so that they are a complete set again.
TEST_F(VerifyTest, RepairOfACompleteSetLeavesNoHole) {
  const std::vector<std::filesystem::path> shards = {folder_ / "train-00000-of-00003.tfrecord",
                                                     folder_ / "train-00001-of-00003.tfrecord",
                                                     folder_ / "train-00002-of-00003.tfrecord"};
  WriteText(shards[0], Records({GrayExample(0, 0)}));
  WriteText(shards[1], "");
  WriteText(shards[2], Records({GrayExample(1, 1)}));
  const auto repair = [&](size_t first, const std::string& folder) {
    const VerifyReport report = VerifyShards({.shards = {shards.begin() + first, shards.end()},
                                              .dataset = &FindDataset("mnist"),
                                              .num_classes = 10});
    WriteRepaired(report, folder_ / folder, 2);
  };
  repair(0, "whole");
  EXPECT_EQ(ReadText(folder_ / "whole/train-00000-of-00002.tfrecord"),
            Records({GrayExample(0, 0)}));
  EXPECT_EQ(ReadText(folder_ / "whole/train-00001-of-00002.tfrecord"),
            Records({GrayExample(1, 1)}));
  WriteText(folder_ / "whole/.train-00000-of-00002.tfrecord.host-1-2.tmp",
            "left by a killed repair");
  repair(0, "whole");
  EXPECT_FALSE(
      std::filesystem::exists(folder_ / "whole/.train-00000-of-00002.tfrecord.host-1-2.tmp"));
  EXPECT_THAT(TextOf<UsageError>([&] { repair(1, "whole"); }), HasSubstr("of another set"));
  repair(1, "part");  // an incomplete set keeps its numbers
  EXPECT_TRUE(std::filesystem::exists(folder_ / "part/train-00002-of-00003.tfrecord"));
}

TEST_F(VerifyTest, RefusesTwoShardsOfTheSameName) {
  EXPECT_THAT(TextOf<UsageError>([&] {
                PrepareRepair({folder_ / "a/shard", folder_ / "b/shard"}, folder_ / "clean");
              }),
              HasSubstr("two shards have the name shard"));
}

// --- CheckExample ---

// Returns the error of an Example that is valid without the features that `add` adds.
std::string BadExample(const std::function<void(ExampleBuilder&)>& add) {
  ExampleBuilder example;
  example.Add("image/encoded", EncodeJpeg(Draw({.height = 8, .width = 8}).image.view(), 90));
  example.Add("image/class/label", int64_t{1});
  add(example);
  Image image;
  return TextOf<DataError>(
      [&] { CheckExample(example.Finish(), &FindDataset("imagenet"), 1001, &image); });
}

void AddBoxes(ExampleBuilder& example, std::array<std::vector<float>, 4> boxes) {
  constexpr std::string_view kKeys[] = {"xmin", "xmax", "ymin", "ymax"};
  for (size_t i = 0; i < 4; ++i)
    example.Add(fmt::format("image/object/bbox/{}", kKeys[i]), std::span<const float>(boxes[i]));
}

TEST(CheckExample, RejectsMissingFeaturesWrongTypesAndLabels) {
  Image image;
  const auto error = [&](const ExampleBuilder& example) {
    return TextOf<DataError>(
        [&] { CheckExample(example.Finish(), &FindDataset("imagenet"), 1001, &image); });
  };
  ExampleBuilder empty;
  EXPECT_EQ(error(empty), "key missing: got no image/encoded; is this a record of images?");
  empty.Add("image/encoded", "x");
  EXPECT_EQ(error(empty), "key missing: got no image/class/label");

  EXPECT_THAT(BadExample([](auto& e) { e.Add("image/class/label", "one"); }),
              HasSubstr("feature image/class/label: wrong type: got bytes, want integers"));
  EXPECT_THAT(BadExample([](auto& e) { e.Add("image/encoded", int64_t{1}); }),
              HasSubstr("feature image/encoded: wrong type: got integers, want bytes"));
  EXPECT_THAT(BadExample([](auto& e) { e.Add("image/format", int64_t{1}); }),
              HasSubstr("feature image/format: wrong type"));
  for (int64_t label : {int64_t{-1}, int64_t{0}, int64_t{1001}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(BadExample([&](auto& e) { e.Add("image/class/label", label); }),
              fmt::format("image/class/label: out of range: got {}, want 1 to 1000", label));
  }
  EXPECT_EQ(BadExample([](auto& e) { e.Add("image/height", int64_t{9}); }),
            "image/height: wrong size: got 9, want 8 as in the image");
  EXPECT_THAT(BadExample([](auto& e) { e.Add("image/encoded", "not an image"); }),
              HasSubstr("[io.image]"));
}

TEST(CheckExample, RejectsBadBoxes) {
  EXPECT_EQ(
      BadExample([](auto& e) {
        AddBoxes(e, {{{0.1f}, {1.5f}, {0.1f}, {0.2f}}});
      }),
      "image/object/bbox/xmin: box 0 outside the image: got 0.1 to 1.5, want 0 <= min <= max <= 1");
  EXPECT_THAT(BadExample([](auto& e) {
                AddBoxes(e, {{{0, 0}, {1, 1}, {0, 0.5f}, {1, 0.4f}}});
              }),
              HasSubstr("image/object/bbox/ymin: box 1 outside the image: got 0.5 to 0.4"));
  EXPECT_THAT(BadExample([](auto& e) {
                AddBoxes(e, {{{-0.1f}, {1}, {0}, {1}}});
              }),
              HasSubstr("box 0"));
  EXPECT_THAT(BadExample([](auto& e) {
                AddBoxes(e, {{{0}, {NAN}, {0}, {1}}});
              }),
              HasSubstr("got 0 to nan"));
  EXPECT_EQ(BadExample([](auto& e) {
              AddBoxes(e, {{{0}, {1}, {0}, {}}});
            }),
            "image/object/bbox/ymax: wrong number of boxes: got 0, want 1 as in "
            "image/object/bbox/xmin");
  EXPECT_THAT(BadExample([](auto& e) {
                AddBoxes(e, {{{0}, {1}, {0}, {1}}});
                e.Add("image/object/bbox/label", std::vector<int64_t>{1, 1});
              }),
              HasSubstr("image/object/bbox/label: wrong number of labels: got 2, want 1"));
}

TEST(CheckExample, RejectsRawPixelsOfTheWrongSize) {
  EXPECT_THAT(BadExample([](auto& e) {
                e.Add("image/format", "raw");
                e.Add("image/encoded", "12345");
                e.Add("image/height", int64_t{2});
                e.Add("image/width", int64_t{1});
              }),
              HasSubstr("raw image of wrong size: got 5 bytes, want 2x1x3"));
  EXPECT_THAT(BadExample([](auto& e) {
                e.Add("image/format", "raw");
                e.Add("image/height", int64_t{1} << 40);
                e.Add("image/width", int64_t{1} << 40);
              }),
              HasSubstr("raw"));
}

}  // namespace
}  // namespace carole::io
