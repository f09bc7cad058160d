// Tests the builders of data sets from folders of photos, and of synthetic ones.
#include <chrono>
#include <map>
#include <set>

#include "io/datasets/class_folders.h"
#include "io/datasets/datasets.h"
#include "io/datasets/drawing.h"
#include "io/datasets/image_example.h"
#include "io/datasets/verify.h"
#include "io/image/jpeg_encode.h"
#include "tests/io/damage.h"
#include "tests/io/image/exif_bytes.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

void WritePhotos(const fs::path& root, const std::map<std::string, int>& counts) {
  uint64_t number = 0;
  for (const auto& [name, count] : counts) {
    fs::create_directories(root / name);
    for (int i = 0; i < count; ++i) {
      const Image image = Draw({.height = 16, .width = 16, .number = ++number}).image;
      WriteText(root / name / fmt::format("{:03}.jpg", i), EncodeJpeg(image.view(), 80));
    }
  }
}

VerifyReport VerifySplit(std::string_view dataset, std::string_view split, const fs::path& folder) {
  const DatasetEntry& entry = FindDataset(dataset);
  const VerifyReport report = VerifyShards({.shards = FindShards(entry, split, folder),
                                            .dataset = &entry,
                                            .num_classes = NumClasses(entry, folder)});
  EXPECT_THAT(report.bad, IsEmpty());
  return report;
}

TEST(BuildFlowers, SplitsAsTfSlimInFiveShards) {
  const TemporaryFolder folder;
  WritePhotos(
      folder / "flower_photos",
      {{"daisy", 20}, {"dandelion", 20}, {"roses", 20}, {"sunflowers", 20}, {"tulips", 21}});
  WriteText(folder / "flower_photos/LICENSE.txt", "not a class");
  const fs::path out = folder / "out";
  BuildFlowers({.dataset = &FindDataset("flowers"), .raw_dir = folder.path(), .output_dir = out});
  const VerifyReport train = VerifySplit("flowers", "train", out);
  EXPECT_EQ(train.shards.size(), 5u);
  EXPECT_EQ(train.shards[4].filename(), "flowers_train_00004-of-00005.tfrecord");
  EXPECT_EQ(train.good[0].size(), 19u);  // ceil(91 / 5); the last has the rest
  EXPECT_EQ(train.good[4].size(), 15u);
  EXPECT_EQ(VerifySplit("flowers", "validation", out).num_good, 10);
  EXPECT_EQ(ReadText(out / "labels.txt"),
            "0:daisy\n1:dandelion\n2:roses\n3:sunflowers\n4:tulips\n");

  const auto source = OpenRecords(train.shards[0]);
  TfRecordReader reader(*source);
  const std::string record(reader.Next().value());
  const std::vector<FeatureQuery> features = ListFeatures(record);
  ASSERT_EQ(features.size(), 5u);
  EXPECT_EQ(SingleBytes(features[1]), "jpg");
  EXPECT_EQ(SingleInt64(features[3]), 16);
}

TEST(BuildFlowers, RefusesOtherClasses) {
  const TemporaryFolder folder;
  WritePhotos(folder.path(), {{"cats", 2}, {"dogs", 2}});
  EXPECT_THAT(
      TextOf<DataError>([&] {
        BuildFlowers({.dataset = &FindDataset("flowers"),
                      .raw_dir = folder.path(),
                      .output_dir = folder / "out"});
      }),
      HasSubstr("wrong class folders: want daisy, dandelion, roses, sunflowers, tulips; for "
                "your own classes pass \x1f$(dataset_name)=folder"));
}

TEST(BuildFolder, SplitsOffTheSameFractionOfEachClass) {
  const TemporaryFolder folder;
  WritePhotos(folder / "raw", {{"cats", 20}, {"dogs", 10}, {"owls", 1}});
  fs::create_directories(folder / "raw/.hidden");
  const Image png = Draw({.height = 9, .width = 9}).image;
  WriteText(folder / "raw/owls/x.PNG", EncodePng(png.view()));
  fs::copy(TestData() + "/io_images/cmyk.jpg", folder / "raw/owls/y.jpeg");
  BuildOptions options{.dataset = &FindDataset("folder"),
                       .raw_dir = folder / "raw",
                       .output_dir = folder / "out",
                       .train_shards = 2,
                       .validation_fraction = 0.2};
  BuildFolder(options);
  EXPECT_EQ(NumClasses(*options.dataset, options.output_dir), 3);
  EXPECT_THAT(ClassNames(*options.dataset, options.output_dir),
              ElementsAre("cats", "dogs", "owls"));
  EXPECT_THAT(VerifySplit("folder", "train", options.output_dir).class_counts,
              ElementsAre(Pair(0, 16), Pair(1, 8), Pair(2, 2)));
  EXPECT_THAT(VerifySplit("folder", "validation", options.output_dir).class_counts,
              ElementsAre(Pair(0, 4), Pair(1, 2), Pair(2, 1)));
}

// The data set tiny-imagenet has its images in CLASS/images.
TEST(BuildFolder, TakesImagesInDeeperFolders) {
  const TemporaryFolder folder;
  WritePhotos(folder / "raw/photos", {{"cats/images", 3}, {"cats/old/more", 2}, {"dogs", 4}});
  WriteText(folder / "raw/photos/cats/boxes.txt", "x");
  WritePhotos(folder / "raw/photos", {{"__MACOSX/cats", 1}, {"dogs/@eaDir", 1}});
  const BuildOptions options{.dataset = &FindDataset("folder"),
                             .raw_dir = folder / "raw",
                             .output_dir = folder / "out",
                             .validation_fraction = 0};
  BuildFolder(options);
  EXPECT_THAT(ClassNames(*options.dataset, options.output_dir), ElementsAre("cats", "dogs"));
  EXPECT_THAT(VerifySplit("folder", "train", options.output_dir).class_counts,
              ElementsAre(Pair(0, 5), Pair(1, 4)));
}

TEST(BuildFolder, TakesSplitsFromFolders) {
  for (const char* name : {"val", "Validation", "test"}) {
    const TemporaryFolder folder;
    WritePhotos(folder / "raw/train", {{"cats", 3}, {"dogs", 4}, {"owls", 2}});
    WritePhotos(fs::path(folder / "raw") / name, {{"cats", 2}, {"owls", 1}});
    fs::create_directories(folder / "raw/notes");
    const BuildOptions options{
        .dataset = &FindDataset("folder"), .raw_dir = folder / "raw", .output_dir = folder / "out"};
    BuildFolder(options);
    EXPECT_THAT(ClassNames(*options.dataset, options.output_dir),
                ElementsAre("cats", "dogs", "owls"));
    EXPECT_THAT(VerifySplit("folder", "train", options.output_dir).class_counts,
                ElementsAre(Pair(0, 3), Pair(1, 4), Pair(2, 2)));
    EXPECT_THAT(VerifySplit("folder", "validation", options.output_dir).class_counts,
                ElementsAre(Pair(0, 2), Pair(2, 1)));
  }
}

TEST(BuildFolder, DoesNotMistakeClassesForSplits) {
  const TemporaryFolder folder;
  WritePhotos(folder / "raw", {{"bus", 2}, {"test", 2}, {"train", 2}});
  EXPECT_THAT(ListSplitFolders(folder / "raw").train.classes, ElementsAre("bus", "test", "train"));
  fs::rename(folder / "raw/train", folder / "raw/old");
  WritePhotos(folder / "raw/train", {{"cats", 1}, {"dogs", 1}});
  EXPECT_THAT(TextOf<DataError>([&] { ListSplitFolders(folder / "raw"); }),
              HasSubstr("raw/bus: 2 images next to the splits train and test"));
  WritePhotos(folder / "kaggle/train", {{"cats", 1}, {"dogs", 1}});
  WritePhotos(folder / "kaggle", {{"test", 3}});  // in no classes
  const SplitFolders kaggle = ListSplitFolders(folder / "kaggle");
  EXPECT_THAT(kaggle.train.classes, ElementsAre("cats", "dogs"));
  EXPECT_FALSE(kaggle.validation);
  WritePhotos(folder / "flat", {{"train", 2}, {"val", 1}});
  EXPECT_THAT(TextOf<DataError>([&] { ListSplitFolders(folder / "flat"); }),
              HasSubstr("flat/train: no class folders: got 2 images in the folder of a split"));
}

TEST(BuildFolder, CountsAndTurnsImagesThatAreNotUpright) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "raw/cats");
  for (int i = 0; i < 3; ++i) {
    const Image image = Draw({.height = 16, .width = 24, .number = static_cast<uint64_t>(i)}).image;
    WriteText(folder / fmt::format("raw/cats/{}.jpg", i),
              WithOrientation(EncodeJpeg(image.view(), 90), i == 0 ? 1 : 6));
  }
  BuildOptions options{.dataset = &FindDataset("folder"),
                       .raw_dir = folder / "raw",
                       .output_dir = folder / "out",
                       .validation_fraction = 0};
  BuildFolder(options);
  EXPECT_EQ(VerifySplit("folder", "train", options.output_dir).num_turned, 2);
  options.apply_exif_orientation = true;
  EXPECT_THAT(TextOf<UsageError>([&] { BuildFolder(options); }), HasSubstr("of another build"));
  options.output_dir = folder / "turned";
  BuildFolder(options);
  const VerifyReport report = VerifySplit("folder", "train", options.output_dir);
  EXPECT_EQ(report.num_turned, 0);
  std::multiset<int64_t> heights;
  const auto source = OpenRecords(report.shards[0]);
  TfRecordReader reader(*source);
  while (const auto record = reader.Next()) {
    FeatureQuery height[] = {{"image/height"}};
    FindFeatures(*record, height);
    heights.insert(SingleInt64(height[0]).value());
  }
  EXPECT_THAT(heights, ElementsAre(16, 24, 24));
}

TEST(BuildFolder, LosesNoClass) {
  const TemporaryFolder folder;
  const auto error = [&] { return TextOf<DataError>([&] { ListSplitFolders(folder / "raw"); }); };
  WritePhotos(folder.path(), {{"raw", 3}});
  EXPECT_THAT(error(), HasSubstr("raw: no class folders: got 3 images directly in it, want one "
                                 "folder of images per class, such as "));
  WritePhotos(folder / "raw", {{"cats", 2}});
  fs::create_directories(folder / "raw/dogs");
  WriteText(folder / "raw/dogs/1.HEIC", "x");
  WriteText(folder / "raw/dogs/2.webp", "x");
  EXPECT_THAT(error(), HasSubstr("raw/dogs: no JPEG or PNG in this folder: got 1 .heic, 1 .webp, "
                                 "such as 1.HEIC, want .jpg"));
  fs::remove_all(folder / "raw");
  WritePhotos(folder / "raw/train", {{"cats", 2}, {"dogs", 2}});
  WritePhotos(folder / "raw/val", {{"images", 2}});
  EXPECT_THAT(error(), HasSubstr("raw/val: class without training images: got folder images, want "
                                 "cats, dogs; sort its images into folders of these names, or "
                                 "build \x1f$(raw_dir)="));
  fs::create_directory_symlink("..", folder / "raw/train/cats/up");
  EXPECT_THAT(error(), HasSubstr("too deep"));
}

TEST(BuildFolder, KeepsATrainingImageOfEachClass) {
  const TemporaryFolder folder;
  WritePhotos(folder / "raw", {{"cats", 3}, {"dogs", 1}});
  const BuildOptions options{.dataset = &FindDataset("folder"),
                             .raw_dir = folder / "raw",
                             .output_dir = folder / "out",
                             .validation_fraction = 1};
  BuildFolder(options);
  EXPECT_THAT(VerifySplit("folder", "train", options.output_dir).class_counts,
              ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_THAT(VerifySplit("folder", "validation", options.output_dir).class_counts,
              ElementsAre(Pair(0, 2)));
}

TEST(BuildFolder, RefusesShardsOfChangedImages) {
  const TemporaryFolder folder;
  WritePhotos(folder / "raw", {{"cats", 4}});
  const BuildOptions options{.dataset = &FindDataset("folder"),
                             .raw_dir = folder / "raw",
                             .output_dir = folder / "out",
                             .validation_fraction = 0};
  BuildFolder(options);
  BuildFolder(options);  // accepts its own shards
  const fs::path changed = fs::directory_iterator(folder / "raw/cats")->path();
  fs::last_write_time(changed, fs::last_write_time(changed) + std::chrono::seconds(1));
  EXPECT_THAT(TextOf<UsageError>([&] { BuildFolder(options); }), HasSubstr("of another build"));
}

TEST(BuildFolder, SplitsBySeed) {
  const TemporaryFolder folder;
  WritePhotos(folder / "raw", {{"cats", 30}, {"dogs", 30}});
  const auto build = [&](uint32_t seed, const char* out) {
    BuildFolder({.dataset = &FindDataset("folder"),
                 .raw_dir = folder / "raw",
                 .output_dir = folder / out,
                 .seed = seed});
    return ReadText(folder / (std::string(out) + "/validation-00000-of-00001.tfrecord"));
  };
  const std::string first = build(1, "a");
  EXPECT_EQ(build(1, "b"), first);
  EXPECT_NE(build(2, "c"), first);
}

TEST(BuildFolder, NamesBadImagesAndEmptyFolders) {
  const TemporaryFolder folder;
  const BuildOptions options{
      .dataset = &FindDataset("folder"), .raw_dir = folder / "raw", .output_dir = folder / "out"};
  EXPECT_THAT(TextOf<DataError>([&] { BuildFolder(options); }), HasSubstr("raw: no such folder"));
  fs::create_directories(folder / "raw/cats");
  EXPECT_THAT(TextOf<DataError>([&] { BuildFolder(options); }),
              HasSubstr("no images: want one folder"));
  fs::create_directories(folder / "raw/two\nlines");
  EXPECT_THAT(TextOf<DataError>([&] { BuildFolder(options); }), HasSubstr("rename the folder"));
  fs::remove(folder / "raw/two\nlines");
  WriteText(folder / "raw/cats/a.jpg", "not an image");
  EXPECT_THAT(TextOf<DataError>([&] { BuildFolder(options); }),
              HasSubstr("cats/a.jpg: [io.image]"));
  fs::create_symlink("nowhere", folder / "raw/cats/b.jpg");
  EXPECT_THAT(TextOf<DataError>([&] { BuildFolder(options); }),
              HasSubstr("b.jpg: not an image file: got a broken link"));

  EXPECT_THAT(TextOf<DataError>([&] { NumClasses(*options.dataset, folder / "out"); }),
              HasSubstr("labels.txt: no such file: it lists the classes of folder"));
  fs::create_directories(folder / "out");
  WriteText(folder / "out/labels.txt", "\n");
  EXPECT_THAT(TextOf<DataError>([&] { NumClasses(*options.dataset, folder / "out"); }),
              HasSubstr("labels.txt: wrong number of classes of folder: got 0, want 1 to"));
}

TEST(BuildSynthetic, WritesImagenetsForm) {
  const TemporaryFolder folder;
  const BuildOptions options{.dataset = &FindDataset("synthetic"),
                             .output_dir = folder / "a",
                             .train_shards = 3,
                             .num_images = 40,
                             .num_classes = 4,
                             .image_width = 64};
  BuildSynthetic(options);
  const VerifyReport train = VerifySplit("imagenet", "train", folder / "a");
  EXPECT_EQ(train.shards.size(), 3u);
  EXPECT_THAT(train.class_counts, ElementsAre(Pair(1, 10), Pair(2, 10), Pair(3, 10), Pair(4, 10)));
  EXPECT_EQ(VerifySplit("synthetic", "validation", folder / "a").num_good, 4);
  EXPECT_EQ(NumClasses(*options.dataset, folder / "a"), 5);
}

TEST(BuildSynthetic, SameSeedGivesTheSameBytes) {
  const TemporaryFolder folder;
  BuildOptions options{.dataset = &FindDataset("synthetic"), .num_images = 3, .image_width = 32};
  const auto build = [&](const char* out, uint32_t seed, int threads) {
    options.output_dir = folder / out;
    options.seed = seed;
    options.threads = threads;
    BuildSynthetic(options);
    return ReadText(folder / (std::string(out) + "/train-00000-of-00001"));
  };
  const std::string first = build("a", 7, 1);
  EXPECT_EQ(build("b", 7, 3), first);
  EXPECT_NE(build("c", 8, 1), first);
}

// The object's color depends on the class: the mean color inside the box is closer to that of
// another image of the same class than to that of another class.
TEST(Drawing, ClassesDifferInColor) {
  const auto mean = [](int label, uint64_t number) {
    const Drawing drawing = Draw({.height = 60, .width = 80, .label = label, .number = number});
    std::array<double, 3> sum{};
    int count = 0;
    for (int y = static_cast<int>(drawing.box.ymin * 60);
         y < static_cast<int>(drawing.box.ymax * 60); ++y) {
      for (int x = static_cast<int>(drawing.box.xmin * 80);
           x < static_cast<int>(drawing.box.xmax * 80); ++x) {
        ++count;
        for (int c = 0; c < 3; ++c) sum[c] += drawing.image.pixels[(y * 80 + x) * 3 + c];
      }
    }
    for (double& value : sum) value /= count;
    return sum;
  };
  const auto distance = [](const auto& a, const auto& b) {
    return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  };
  int right = 0;
  for (uint64_t i = 0; i < 20; ++i)
    right +=
        distance(mean(0, i), mean(0, 100 + i)) < distance(mean(0, i), mean(1, 100 + i)) ? 1 : 0;
  EXPECT_GE(right, 17);
}

}  // namespace
}  // namespace carole::io
