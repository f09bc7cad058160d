#include "io/datasets/datasets.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "io/datasets/cifar.h"
#include "src/core/files/run_lock.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Datasets, TableIsComplete) {
  for (const DatasetEntry& dataset : kDatasets) {
    SCOPED_TRACE(dataset.name);
    EXPECT_EQ(&FindDataset(dataset.name), &dataset);
    EXPECT_EQ(dataset.splits.size(), 2u);
    EXPECT_EQ(dataset.splits[0].name, "train");
    EXPECT_TRUE(dataset.class_names.empty() ||
                static_cast<int>(dataset.class_names.size()) == dataset.num_classes);
  }
}

TEST(Datasets, UnknownNamesGiveTheListOfKnownNames) {
  EXPECT_THAT(
      TextOf<UsageError>([] { FindDataset("minst"); }),
      HasSubstr("got 'minst', want one of imagenet, flowers, cifar10, mnist, fashion_mnist"));
  EXPECT_EQ(TextOf<UsageError>([] { FindSplit(FindDataset("flowers"), "test"); }),
            "[io.datasets] \x1f$(dataset_split_name), \x1f$(eval_split_name): flowers has no such "
            "split: got "
            "'test', want one of train, "
            "validation");
}

TEST(Datasets, FindsAndSortsShards) {
  const TemporaryFolder folder;
  for (const char* name :
       {"train-00001-of-00002", "train-00000-of-00002", "validation-00000-of-00001",
        ".train-00000-of-00002.tmp", "labels.txt"}) {
    WriteText(folder / name, "x");
  }
  EXPECT_THAT(FindShards(FindDataset("imagenet"), "train", folder.path()),
              ElementsAre(folder / "train-00000-of-00002", folder / "train-00001-of-00002"));
}

// Later versions of TF-Slim have this data set.
TEST(Datasets, FindsVisualWakeWordsByTfSlimsFileNames) {
  const TemporaryFolder folder;
  for (const char* name :
       {"train.record-00000-of-00001", "val.record-00000-of-00002", "val.record-00001-of-00002"})
    WriteText(folder / name, "x");
  const DatasetEntry& dataset = FindDataset("visualwakewords");
  EXPECT_THAT(
      FindShards(dataset, "val", folder.path()),
      ElementsAre(folder / "val.record-00000-of-00002", folder / "val.record-00001-of-00002"));
  EXPECT_EQ(FindShards(dataset, "train", folder.path()).size(), 1u);
  EXPECT_EQ(NumClasses(dataset, folder.path()), 2);
}

TEST(Datasets, NamesMissingShards) {
  const TemporaryFolder folder;
  for (int i : {0, 2, 4})
    WriteText(folder / fmt::format("flowers_train_{:05}-of-00005.tfrecord", i), "x");
  EXPECT_EQ(TextOf<DataError>([&] { FindShards(FindDataset("flowers"), "train", folder.path()); }),
            "[io.datasets] " + folder.path() +
                ": 2 of 5 shards are missing: 00001-of-00005, 00003-of-00005; copy them too");
}

TEST(Datasets, RefusesShardsOfTwoSets) {
  const TemporaryFolder folder;
  WriteText(folder / "train-00000-of-00001", "x");
  WriteText(folder / "train-00000-of-00002", "x");
  EXPECT_THAT(
      TextOf<DataError>([&] { FindShards(FindDataset("imagenet"), "train", folder.path()); }),
      HasSubstr("shards of two sets: got -of-00001 and -of-00002"));
}

TEST(Datasets, RefusesDuplicateShards) {
  const TemporaryFolder folder;
  for (const char* name :
       {"train-00000-of-00002", "train-00001-of-00002", "train-00001-of-00002.tfrecord"})
    WriteText(folder / name, "x");
  EXPECT_THAT(
      TextOf<DataError>([&] { FindShards(FindDataset("imagenet"), "train", folder.path()); }),
      HasSubstr("train-00001-of-00002.tfrecord: duplicate shard 00001-of-00002"));
  std::filesystem::rename(folder / "train-00001-of-00002.tfrecord",
                          folder / "train-00007-of-00002");
  EXPECT_THAT(
      TextOf<DataError>([&] { FindShards(FindDataset("imagenet"), "train", folder.path()); }),
      HasSubstr("train-00007-of-00002: shard number out of range: got 7, want 0 to 1"));
}

TEST(Datasets, HandlesAnAbsurdNumberOfShards) {
  const TemporaryFolder folder;
  WriteText(folder / "train-00000-of-2000000000", "x");
  EXPECT_THAT(
      TextOf<DataError>([&] { FindShards(FindDataset("imagenet"), "train", folder.path()); }),
      HasSubstr("1999999999 of 2000000000 shards are missing: 00001-of-2000000000"));
}

TEST(Datasets, FindsShardsInSeveralFolders) {
  const TemporaryFolder a, b;
  WriteText(a / "train-00001-of-00003", "x");
  WriteText(b / "train-00000-of-00003", "x");
  WriteText(b / "train-00002-of-00003", "x");
  WriteText(b / "labels.txt", "0:a\n6:b\n");
  const DatasetEntry& folder = FindDataset("folder");
  const auto all = ElementsAre(b / "train-00000-of-00003", a / "train-00001-of-00003",
                               b / "train-00002-of-00003");
  for (const std::string& dataset_dir :
       {a.path() + "," + b.path(), b.path() + "/train-*," + a.path() + ",",
        b.path() + "/*," + a / "t*"}) {
    SCOPED_TRACE(dataset_dir);
    EXPECT_THAT(FindShards(folder, "train", dataset_dir), all);
    EXPECT_EQ(NumClasses(folder, dataset_dir), 7);
  }
  EXPECT_THAT(TextOf<DataError>([&] { FindShards(folder, "train", a.path() + ",/no/such"); }),
              HasSubstr("\x1f$(dataset_dir) /no/such: cannot be read: No such file"));
  std::filesystem::create_directory(a / "x,y");
  std::filesystem::rename(a / "train-00001-of-00003", a / "x,y/train-00000-of-00001");
  EXPECT_THAT(FindShards(folder, "train", a / "x,y"), SizeIs(1));
}

// Other programs name their shards in other ways.
TEST(Datasets, TakesNamedFilesWhateverTheirNames) {
  const TemporaryFolder folder;
  const DatasetEntry& dataset = FindDataset("folder");
  for (const char* name : {"my_train_00000-of-00002.tfrecord", "my_train_00001-of-00002.tfrecord",
                           "more-train.tfrecord-00000-of-00001", "my_val.tfrecord", "data.bin",
                           "labels.txt", "features.json"})
    WriteText(folder / name, "x");
  const auto names = [&](std::string_view split, const std::string& dataset_dir) {
    std::vector<std::string> found;
    for (const auto& path : FindShards(dataset, split, dataset_dir))
      found.push_back(path.filename().string());
    return found;
  };
  const auto train =
      ElementsAre("more-train.tfrecord-00000-of-00001", "my_train_00000-of-00002.tfrecord",
                  "my_train_00001-of-00002.tfrecord");
  EXPECT_THAT(names("train", folder / "*"), train);
  EXPECT_THAT(names("train", folder / "m*," + (folder / "my_train*")), train);
  EXPECT_THAT(names("validation", folder / "*"), ElementsAre("my_val.tfrecord"));
  EXPECT_THAT(names("train", folder / "data.bin"), ElementsAre("data.bin"));
  EXPECT_THAT(TextOf<DataError>([&] { names("train", folder / "my_train_00000*"); }),
              HasSubstr("1 of 2 shards are missing"));
  EXPECT_THAT(TextOf<DataError>([&] { names("train", folder / "my_val.tfrecord"); }),
              HasSubstr("no file matches train-*: got my_val.tfrecord; these are files of the "
                        "split validation"));
  EXPECT_THAT(TextOf<DataError>([&] { names("train", folder.path()); }),
              HasSubstr("no file matches train-*: got more-train.tfrecord-00000-of-00001, "
                        "my_train_00000-of-00002.tfrecord, my_train_00001-of-00002.tfrecord and 1 "
                        "more; to read files of other names, name them: \x1f$(dataset_dir)=" +
                        folder.path()));
  EXPECT_THAT(TextOf<DataError>([&] { NumClasses(FindDataset("folder"), folder / "gone"); }),
              HasSubstr("gone/labels.txt: no such file"));
  EXPECT_THAT(TextOf<DataError>([&] { NumClasses(FindDataset("folder"), folder / "gone*"); }),
              HasSubstr("gone*: no file has such a name; correct the path"));
}

TEST(Datasets, NamesTheFlagOfAMissingFolder) {
  const TemporaryFolder folder;
  const DatasetEntry& mnist = FindDataset("mnist");
  EXPECT_EQ(TextOf<DataError>([&] { FindShards(mnist, "train", folder / "nothing"); }),
            "[io.datasets] \x1f$(dataset_dir) " + (folder / "nothing") +
                ": cannot be read: No such file or directory");
  EXPECT_THAT(
      TextOf<DataError>([&] { FindShards(mnist, "test", folder.path()); }),
      HasSubstr("\x1f$(dataset_dir) " + folder.path() + ": no file matches mnist_test.tfrecord"));
  EXPECT_THAT(TextOf<UsageError>([&] { FindShards(mnist, "test", ""); }),
              HasSubstr("\x1f$(dataset_dir): missing: want a folder with TFRecords"));
}

TEST(Datasets, TakesClassNamesFromLabelsFileThenTable) {
  const TemporaryFolder folder;
  const DatasetEntry& flowers = FindDataset("flowers");
  EXPECT_THAT(ClassNames(flowers, folder.path()),
              ElementsAre("daisy", "dandelion", "roses", "sunflowers", "tulips"));
  WriteText(folder / "labels.txt", "0:a:b\r\n\n2:c\n");
  EXPECT_THAT(ClassNames(flowers, folder.path()),
              ElementsAre("a:b", "dandelion", "c", "sunflowers", "tulips"));
  const DatasetEntry& folder_set = FindDataset("folder");
  WriteText(folder / "labels.txt", "0:a\n1:b\n0:c\n");
  EXPECT_THAT(TextOf<DataError>([&] { NumClasses(folder_set, folder.path()); }),
              HasSubstr("labels.txt: class 0: got two lines, the second with name 'c', want one"));
  WriteText(folder / "labels.txt", "0:a\nb\n");
  EXPECT_THAT(TextOf<DataError>([&] { ClassNames(flowers, folder.path()); }),
              HasSubstr("labels.txt: line 2: got 'b', want INDEX:NAME"));
}

TEST(Datasets, ReadsLabelsOfWindowsEditors) {
  const TemporaryFolder folder;
  const DatasetEntry& dataset = FindDataset("folder");
  WriteText(folder / "labels.txt",
            "\xef\xbb\xbf"
            "0:a\r\n1:b\r\n");
  EXPECT_THAT(ClassNames(dataset, folder.path()), ElementsAre("a", "b"));
  const auto error = [&](const std::string& text) {
    WriteText(folder / "labels.txt", text);
    return TextOf<DataError>([&] { NumClasses(dataset, folder.path()); });
  };
  EXPECT_THAT(error(std::string("\xff\xfe"
                                "0\0:\0a\0",
                                8)),
              HasSubstr("labels.txt: wrong encoding: got UTF-16, want UTF-8; convert it: iconv"));
  EXPECT_THAT(error(std::string("0\0:\0a\0", 6)), HasSubstr("wrong encoding: got UTF-16"));
  EXPECT_THAT(error("0:a\n\xe2\x80\x8b"
                    "1:b\n"),
              AllOf(HasSubstr("line 2: got '"), HasSubstr("200b")));
}

TEST(Datasets, KnowsClassNamesOfImagenetWithoutAFile) {
  const TemporaryFolder folder;
  const DatasetEntry& imagenet = FindDataset("imagenet");
  std::vector<std::string> names = ClassNames(imagenet, folder.path());
  ASSERT_EQ(names.size(), 1001u);
  EXPECT_EQ(names[0], "background");
  EXPECT_EQ(names[1], "tench, Tinca tinca");
  EXPECT_EQ(names[1000], "toilet tissue, toilet paper, bathroom tissue");
  WriteText(folder / "labels.txt", "0:nothing\n1:a fish\n");
  names = ClassNames(imagenet, folder.path());
  EXPECT_EQ(names[0], "nothing");
  EXPECT_EQ(names[1], "a fish");
}

// Returns an IDX file: images of side x side pixels, or labels if `side` is 0.
std::string Idx(int count, int side, std::string_view data) {
  std::string bytes = FromHex(side > 0 ? "00000803" : "00000801");
  bytes += FromHex(fmt::format("{:08x}", count));
  if (side > 0) bytes += FromHex(fmt::format("{0:08x}{0:08x}", side));
  return bytes + std::string(data);
}

void WriteMnist(const TemporaryFolder& folder, std::string_view labels) {
  const int count = static_cast<int>(labels.size());
  for (const char* stem : {"train", "t10k"}) {
    std::string pixels(static_cast<size_t>(count) * 28 * 28, '\0');
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i % 251);
    WriteText(folder / fmt::format("{}-images-idx3-ubyte", stem), Idx(count, 28, pixels));
    WriteText(folder / fmt::format("{}-labels.idx1-ubyte", stem), Idx(count, 0, labels));
  }
}

TEST(BuildMnist, WritesRecordsInTfSlimsForm) {
  const TemporaryFolder raw;
  const TemporaryFolder out;
  WriteMnist(raw, std::string("\x09\x00\x05", 3));
  std::vector<std::string> reports;
  FindDataset("fashion_mnist")
      .build({.dataset = &FindDataset("fashion_mnist"),
              .raw_dir = raw.path(),
              .output_dir = out / "made",
              .progress = [&](std::string_view split, int64_t done, int64_t total) {
                reports.push_back(fmt::format("{} {}/{}", split, done, total));
              }});
  EXPECT_EQ(std::set(reports.begin(), reports.end()),
            (std::set<std::string>{"train 0/3", "train 3/3", "test 0/3", "test 3/3"}));
  EXPECT_THAT(ReadText(out / "made/labels.txt"), HasSubstr("0:T-shirt/top\n1:Trouser\n"));

  const auto source = OpenRecords(out / "made/fashion_mnist_train.tfrecord");
  TfRecordReader reader(*source);
  reader.Next();
  reader.Next();
  const std::string example(reader.Next().value());
  std::vector<FeatureQuery> features = ListFeatures(example);
  ASSERT_EQ(features.size(), 5u);
  EXPECT_EQ(features[0].key, "image/encoded");
  EXPECT_EQ(SingleBytes(features[1]), "png");
  EXPECT_EQ(features[2].key, "image/class/label");
  EXPECT_EQ(SingleInt64(features[2]), 5);
  EXPECT_EQ(SingleInt64(features[3]), 28);
  EXPECT_EQ(SingleInt64(features[4]), 28);
  Image image;
  DecodeImage(*SingleBytes(features[0]), 1, &image);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    ASSERT_EQ(image.pixels[i], (2 * 28 * 28 + i) % 251);
  EXPECT_EQ(reader.Next(), std::nullopt);
}

TEST(BuildMnist, WritesNothingForBadRawData) {
  const TemporaryFolder raw;
  const TemporaryFolder out;
  WriteMnist(raw, std::string("\x09\x0a", 2));
  const BuildOptions options{
      .dataset = &FindDataset("mnist"), .raw_dir = raw.path(), .output_dir = out.path()};
  EXPECT_THAT(
      TextOf<DataError>([&] { BuildMnist(options); }),
      HasSubstr("train-labels.idx1-ubyte: image 1: label out of range: got 10, want 0 to 9"));
  WriteText(raw / "train-labels.idx1-ubyte", Idx(3, 0, std::string(3, '\0')));
  EXPECT_THAT(TextOf<DataError>([&] { BuildMnist(options); }),
              HasSubstr("wrong number of labels: got 3, want 2"));
  EXPECT_TRUE(std::filesystem::is_empty(out.path()));
}

TEST(BuildMnist, DoesNotWriteHalfADataSet) {
  const TemporaryFolder raw;
  const TemporaryFolder out;
  const DatasetEntry& mnist = FindDataset("mnist");
  EXPECT_TRUE(FindRawMnist(mnist, raw.path()).empty());
  WriteMnist(raw, "\x09");
  EXPECT_EQ(FindRawMnist(mnist, raw.path()).size(), 4u);
  std::filesystem::remove(raw / "t10k-labels.idx1-ubyte");
  EXPECT_EQ(FindRawMnist(mnist, raw.path()).size(), 3u);
  EXPECT_THAT(TextOf<DataError>([&] {
                BuildMnist({.dataset = &mnist, .raw_dir = raw.path(), .output_dir = out.path()});
              }),
              HasSubstr("t10k-labels"));
  EXPECT_TRUE(std::filesystem::is_empty(out.path()));
}

TEST(BuildMnist, RefusesFilesOfAnotherBuild) {
  const TemporaryFolder raw, out;
  WriteMnist(raw, std::string("\x09\x00\x05", 3));
  BuildOptions options{
      .dataset = &FindDataset("mnist"), .raw_dir = raw.path(), .output_dir = out.path()};
  BuildMnist(options);
  const std::string whole = ReadText(out / "mnist_train.tfrecord");
  WriteText(out / ".mnist_train.tfrecord.host-1-2.tmp", "left by a killed run");
  BuildMnist(options);
  EXPECT_FALSE(std::filesystem::exists(out / ".mnist_train.tfrecord.host-1-2.tmp"));
  options.max_images = 2;
  EXPECT_THAT(TextOf<UsageError>([&] { BuildMnist(options); }),
              HasSubstr("holds mnist_train.tfrecord of another build: want shards made from "
                        "'mnist train: first 2 of 3 images"));
  EXPECT_EQ(ReadText(out / "mnist_train.tfrecord"), whole);
  std::filesystem::remove(out / "mnist_train.tfrecord");
  EXPECT_THAT(TextOf<UsageError>([&] { BuildMnist(options); }), HasSubstr("mnist_test.tfrecord"));
  EXPECT_FALSE(std::filesystem::exists(out / "mnist_train.tfrecord")) << "half a data set";
}

TEST(BuildMnist, WaitsForAnotherBuildOfTheFolder) {
  const TemporaryFolder raw, out;
  WriteMnist(raw, "\x09");
  std::optional<RunLock> lock(out.path());
  std::atomic<bool> is_built = false;
  std::thread second([&] {
    BuildMnist({.dataset = &FindDataset("mnist"), .raw_dir = raw.path(), .output_dir = out.path()});
    is_built = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(is_built);
  EXPECT_FALSE(std::filesystem::exists(out / "mnist_train.tfrecord"));
  lock.reset();
  second.join();
  EXPECT_TRUE(std::filesystem::exists(out / "mnist_train.tfrecord"));
}

TEST(BuildCifar10, WritesRecords) {
  const TemporaryFolder raw;
  const TemporaryFolder out;
  std::filesystem::create_directory(raw / "cifar-10-batches-bin");
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    const auto path = raw / "cifar-10-batches-bin/" + name;
    WriteText(path, "\x07");  // the rest of the file is zeros
    std::filesystem::resize_file(path, 3 * kCifarRecordBytes);
  }
  const DatasetEntry& cifar10 = FindDataset("cifar10");
  cifar10.build(
      {.dataset = &cifar10, .raw_dir = raw.path(), .output_dir = out.path(), .max_images = 2});
  const auto source = OpenRecords(out / "cifar10_test.tfrecord");
  TfRecordReader reader(*source);
  const std::string example(reader.Next().value());
  std::vector<FeatureQuery> features = ListFeatures(example);
  EXPECT_EQ(SingleInt64(features[2]), 7);
  Image image;
  DecodeImage(*SingleBytes(features[0]), 3, &image);
  EXPECT_EQ(image.pixels, std::vector<uint8_t>(32 * 32 * 3, 0));
  EXPECT_TRUE(reader.Next().has_value());
  EXPECT_FALSE(reader.Next().has_value());

  EXPECT_THROW(
      cifar10.build({.dataset = &cifar10, .raw_dir = raw.path(), .output_dir = out.path()}),
      UsageError)
      << "a build of more images";

  std::filesystem::resize_file(raw / "cifar-10-batches-bin/data_batch_1.bin", 3072);
  EXPECT_THAT(
      TextOf<DataError>([&] {
        BuildCifar10({.dataset = &cifar10, .raw_dir = raw.path(), .output_dir = out.path()});
      }),
      HasSubstr("data_batch_1.bin: wrong size: got 3072 bytes"));
}

}  // namespace
}  // namespace carole::io
