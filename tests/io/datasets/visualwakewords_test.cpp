#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/datasets.h"
#include "io/datasets/drawing.h"
#include "io/datasets/verify.h"
#include "io/image/jpeg_encode.h"
#include "src/core/error.h"
#include "tests/io/damage.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

// Images of 20 x 10 pixels, so the smallest person counts from more than one pixel on.
constexpr const char* kAnnotations = R"({
  "info": {"description": "drawn"},
  "images": [
    {"id": 7, "file_name": "a.jpg", "height": 10, "width": 20},
    {"id": 8, "file_name": "b.jpg", "height": 10, "width": 20},
    {"id": 9, "file_name": "c.jpg", "height": 10, "width": 20},
    {"id": 10, "file_name": "d.jpg", "height": 10, "width": 20}],
  "annotations": [
    {"id": 1, "image_id": 7, "category_id": 3, "area": 150, "bbox": [0, 0, 15, 10], "segmentation": [[1, 2]]},
    {"id": 2, "image_id": 8, "category_id": 1, "area": 1, "bbox": [0, 0, 1, 1], "segmentation": {"counts": [1]}},
    {"id": 3, "image_id": 9, "category_id": 1, "area": 1.5, "bbox": [0, 0, 1, 2], "segmentation": [[1, 2]]},
    {"id": 4, "image_id": 99, "category_id": 1, "area": 100, "bbox": [0, 0, 10, 10], "segmentation": []}],
  "categories": [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}]})";

void WriteCoco(const fs::path& root, const std::string& split, const std::string& annotations) {
  fs::create_directories(root / "annotations");
  fs::create_directories(root / split);
  WriteText(root / "annotations" / ("instances_" + split + ".json"), annotations);
  uint64_t number = 0;
  for (const char* name : {"a.jpg", "b.jpg", "c.jpg", "d.jpg"}) {
    const Image image = Draw({.height = 10, .width = 20, .number = ++number}).image;
    WriteText(root / split / name, EncodeJpeg(image.view(), 80));
  }
}

BuildOptions Options(const TemporaryFolder& folder) {
  return {.dataset = &FindDataset("visualwakewords"),
          .raw_dir = folder.path(),
          .output_dir = folder / "out",
          .train_shards = 2};
}

TEST(BuildVisualWakeWords, LabelsImagesWithALargeEnoughPerson) {
  const TemporaryFolder folder;
  WriteCoco(folder.path(), "train2014", kAnnotations);
  WriteCoco(folder.path(), "val2014", kAnnotations);
  const auto built = BuildVisualWakeWords(Options(folder));
  ASSERT_EQ(built.size(), 2u);
  EXPECT_THAT(built[0].class_counts, UnorderedElementsAre(Pair(0, 3), Pair(1, 1)));
  EXPECT_EQ(ReadText(folder / "out/labels.txt"), "0:background\n1:person\n");
  const DatasetEntry& entry = FindDataset("visualwakewords");
  const VerifyReport report = VerifyShards(
      {.shards = FindShards(entry, "train", folder / "out"), .dataset = &entry, .num_classes = 2});
  EXPECT_THAT(report.bad, IsEmpty());
  EXPECT_EQ(report.num_good, 4);
  ASSERT_EQ(report.shards.size(), 2u);
  EXPECT_EQ(report.shards[0].filename(), "train.record-00000-of-00002");
  // The images are dealt out: a and c, then b and d.
  EXPECT_EQ(report.good[0].size(), 2u);
  EXPECT_EQ(FindShards(entry, "val", folder / "out").size(), 4u);  // no more shards than images
}

TEST(BuildVisualWakeWords, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const auto fails = [&] {
    return TextOf<DataError>([&] { BuildVisualWakeWords(Options(folder)); });
  };
  EXPECT_THAT(fails(), HasSubstr("want annotations/instances_train2014.json"));
  WriteCoco(folder.path(), "train2014", "{\"images\": [{\"id\": 1}], \"annotations\": []}");
  EXPECT_THAT(fails(), HasSubstr("instances_train2014.json: is not a file of COCO's annotations"));
  WriteCoco(folder.path(), "train2014", "[1, 2");
  EXPECT_THAT(fails(), HasSubstr("is not a file of COCO's annotations"));
  WriteCoco(folder.path(), "train2014",
            "{\"images\": [], \"annotations\": [], \"categories\": []}");
  EXPECT_THAT(fails(), HasSubstr("got 0 images and no category \"person\""));
}

}  // namespace
}  // namespace carole::io
