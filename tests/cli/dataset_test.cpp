// carole dataset build, verify and show, on good and on damaged files.
#include <algorithm>

#include "io/image/image.h"
#include "io/records/example.h"
#include "tests/cli/cli.h"
#include "tests/cli/damage.h"

namespace carole::testing {
namespace {

class DatasetTest : public CliTest {};

Words Verify(const std::string& file) {
  return {"dataset", "verify", "--dataset_name=mnist", file};
}

TEST_F(DatasetTest, VerifyCountsGoodRecords) {
  const ProcessResult result = RunToEnd({"dataset", "verify", "--dataset_name=mnist",
                                         "--dataset_split_name=test", "--dataset_dir", data_dir_});
  EXPECT_NE(result.out.find("100 records, all good"), std::string::npos) << result.out;
}

TEST_F(DatasetTest, ShowPrintsTheFieldsOfARecord) {
  const ProcessResult result = RunToEnd({"dataset", "show", train_file_, "--record=7"});
  EXPECT_NE(result.out.find("record 7 at byte"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("28x28"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("int64 7\n"), std::string::npos) << result.out;
  EXPECT_TRUE(
      FailsWith(Carole({"dataset", "show", train_file_, "--record=300"}), 64, {"--record", "300"}));
}

TEST_F(DatasetTest, ShowEscapesControlCharactersOfARecord) {
  io::ExampleBuilder example;
  example.Add("title\033[2J", "\033[2J");
  WriteRecord(train_file_, example);
  const ProcessResult result = RunToEnd({"dataset", "show", train_file_});
  EXPECT_EQ(result.out.find('\033'), std::string::npos) << result.out;
  EXPECT_THAT(result.out, ::testing::HasSubstr(R"("title\x1b[2J")"));
}

TEST_F(DatasetTest, VerifyNamesTheDamage) {
  const std::string good = ReadText(train_file_);
  FlipBit(train_file_, OffsetOfRecord(good, 3) + 12 + 40);
  EXPECT_TRUE(FailsWith(Carole(Verify(train_file_)), 65,
                        {"mnist_train.tfrecord", "record 3", "data checksum"}));
  WriteFile(train_file_, good);
  FlipBit(train_file_, OffsetOfRecord(good, 4) + 2);
  EXPECT_TRUE(FailsWith(Carole(Verify(train_file_)), 65,
                        {"mnist_train.tfrecord", "record 4", "length checksum"}));
  WriteFile(train_file_, good.substr(0, good.size() - 9));
  EXPECT_TRUE(FailsWith(Carole(Verify(train_file_)), 65, {"mnist_train.tfrecord", "record 299"}));
  WriteFile(train_file_, "");
  EXPECT_TRUE(FailsWith(Carole(Verify(train_file_)), 65, {"mnist_train.tfrecord", "empty"}));
}

TEST_F(DatasetTest, RepairCopiesTheGoodRecords) {
  FlipBit(train_file_, OffsetOfRecord(ReadText(train_file_), 3) + 12 + 40);
  const std::string clean = folder_ / "clean";
  EXPECT_TRUE(FailsWith(
      Carole({"dataset", "verify", "--dataset_name=mnist", train_file_, "--repair", clean}), 65,
      {"1 of 300 records are bad", "record 3"}));
  const ProcessResult result = RunToEnd(Verify(clean + "/mnist_train.tfrecord"));
  EXPECT_NE(result.out.find("299 records, all good"), std::string::npos) << result.out;
}

TEST_F(DatasetTest, VerifyRefusesBadPathsBeforeItReads) {
  EXPECT_TRUE(FailsWith(
      Carole(Verify(data_dir_)), 64,
      {data_dir_, "is a folder, want TFRecord files; name files, or give --dataset_name"}));
  Words words = Verify(train_file_);
  words.push_back("--repair=" + train_file_ + "/clean");
  const ProcessResult result = Carole(words);
  EXPECT_TRUE(FailsWith(result, 74, {"clean", "cannot make the folder"}));
  EXPECT_EQ(result.out.find("good records"), std::string::npos) << result.out;
}

TEST_F(DatasetTest, SyntheticImagesAreBuiltVerifiedAndShown) {
  const std::string drawn = folder_ / "drawn";
  const Words build = {"dataset",
                       "build",
                       "--dataset_name=synthetic",
                       "--dataset_dir",
                       drawn,
                       "--num_images=20",
                       "--image_width=40",
                       "--num_classes=5",
                       "--train_shards=2"};
  ProcessResult result = RunToEnd(build);
  EXPECT_NE(result.out.find("train: 20 of 20 images"), std::string::npos) << result.out;
  EXPECT_THAT(result.out,
              ::testing::HasSubstr(drawn + ": 5 classes\n"
                                           "  label       train  validation  class\n"
                                           "      1           4           1  drawing 1\n"
                                           "      2           4           1  drawing 2\n"
                                           "      3           4           0  drawing 3\n"));
  EXPECT_THAT(result.out, ::testing::EndsWith("    all          20           2  images\n"
                                              "Next: carole train --ranks=2 "
                                              "--dataset_name=synthetic --dataset_dir=" +
                                              drawn + " --train_dir=" + drawn +
                                              "-run --model_name=resnet_v1_50\n"));
  result = RunToEnd({"dataset", "verify", "--dataset_name=synthetic", "--dataset_dir", drawn});
  EXPECT_NE(result.out.find("class    5:       4  drawing 5"), std::string::npos) << result.out;

  const std::string picture = folder_ / "picture.png";
  result = RunToEnd({"dataset", "show", "--dataset_name=synthetic", "--dataset_dir", drawn,
                     "--record=3", "--picture", picture});
  EXPECT_EQ(ReadText(picture).substr(1, 3), "PNG");
  EXPECT_THAT(result.out,
              ::testing::ContainsRegex("image/class/label +int64 [1-5]  drawing [1-5]\n"));

  Words other = build;
  other.emplace_back("--seed=1");
  EXPECT_TRUE(FailsWith(Carole(other), 64, {"of another build"}));
}

TEST_F(DatasetTest, ShowWritesRawPixelsAsAnImage) {
  const std::string picture = folder_ / "picture.png";
  WriteGrayRecord(train_file_, 0x7f, 3);
  const ProcessResult result = RunToEnd({"dataset", "show", "--dataset_name=mnist", "--dataset_dir",
                                         data_dir_, "--picture", picture});
  EXPECT_THAT(result.out, ::testing::HasSubstr("image, 28x28, written"));
  io::Image image;
  io::DecodeImage(ReadText(picture), 3, &image);
  EXPECT_EQ(image.pixels, std::vector<uint8_t>(28 * 28 * 3, 0x7f));
}

TEST_F(DatasetTest, ShowDrawsBoxesAndSaysWhyItDoesNot) {
  const std::string picture = folder_ / "picture.png";
  const auto show = [&](float ymax) {
    io::ExampleBuilder example;
    example.Add("image/encoded", std::string(28 * 28 * 3, '\0'));
    example.Add("image/format", "raw");
    example.Add("image/height", int64_t{28});
    example.Add("image/width", int64_t{28});
    const auto add = [&](const char* key, float value) {
      example.Add(key, std::span<const float>(&value, 1));
    };
    add("image/object/bbox/xmin", 0);
    add("image/object/bbox/xmax", 1);
    add("image/object/bbox/ymin", 0);
    add("image/object/bbox/ymax", ymax);
    WriteRecord(train_file_, example);
    return Carole({"dataset", "show", train_file_, "--picture", picture});
  };
  const auto count_green = [&] {
    io::Image image;
    io::DecodeImage(ReadText(picture), 3, &image);
    return std::ranges::count(image.pixels, 255);
  };
  ProcessResult result = show(1);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count_green(), 28 * 28 - 24 * 24);
  result = show(1.5f);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("image/object/bbox/ymin: box 0 outside"));
  EXPECT_EQ(count_green(), 0);
}

TEST_F(DatasetTest, BuildNamesClassesAndTheNextCommand) {
  const std::string photos = folder_ / "photos", data = folder_ / "my data";
  for (const char* name : {"val/cats", "train/cats", "train/dogs/more"})
    WriteDigitImages(photos + "/" + name, 6);
  WriteFile(photos + "/train/cats/bad.jpg", "<html>");
  const ProcessResult result =
      RunToEnd({"dataset", "build", "--dataset_name=folder", "--raw_dir", photos, "--dataset_dir",
                data + "/", "--max_bad_records=1"});
  EXPECT_THAT(result.out, ::testing::HasSubstr("      0           6           6  cats\n"
                                               "      1           6           0  dogs\n"
                                               "    all          12           6  images\n"
                                               "Next: carole train --ranks=2 --recipe=own_images "
                                               "--dataset_name=folder --dataset_dir='" +
                                               data + "' --train_dir='" + data + "-run'\n"));
  EXPECT_THAT(result.err, ::testing::HasSubstr("train/cats/bad.jpg: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr("got an HTML page, want a JPEG or a PNG"));
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--raw_dir", photos, "--dataset_dir", data}),
                        64, {"--dataset_name: missing: want one of imagenet, ", "folder"}));
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--dataset_name=mnist", "--raw_dir", photos,
                                "--dataset_dir", data, "--apply_exif_orientation"}),
                        64, {"--apply_exif_orientation: not for this data set"}));
}

TEST_F(DatasetTest, MissingRawFilesAreNamed) {
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--dataset_name=mnist", "--raw_dir",
                                folder_ / "nowhere", "--dataset_dir", folder_ / "out"}),
                        65, {"nowhere"}));
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--dataset_name=cifar10", "--raw_dir",
                                folder_ / "raw", "--dataset_dir", folder_ / "out"}),
                        65, {"[io.build] --raw_dir", "no data_batch_1.bin here or in"}));
  EXPECT_TRUE(FailsWith(
      Carole({"dataset", "build", "--dataset_name=imagenet", "--dataset_dir", folder_ / "out"}), 64,
      {"--raw_dir"}));
}

}  // namespace
}  // namespace carole::testing
