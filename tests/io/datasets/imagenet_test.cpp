// Builds ImageNet from tiny archives in the form of the official ones, verifies the shards, and
// compares every feature.
#include <algorithm>
#include <map>

#include "io/datasets/datasets.h"
#include "io/datasets/drawing.h"
#include "io/datasets/image_example.h"
#include "io/datasets/imagenet/imagenet_lists.h"
#include "io/datasets/python_random.h"
#include "io/datasets/verify.h"
#include "io/image/jpeg.h"
#include "io/image/jpeg_encode.h"
#include "tests/io/archives/tar_bytes.h"
#include "tests/io/damage.h"
#include "tests/io/datasets/annotation.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kSynsets = 10;         // every 100th of the 1000
constexpr int kImagesPerSynset = 4;  // number of training images
constexpr int kValidation = 24;

int LabelOf(int synset) { return synset * 100 + 1; }
std::string_view IdOf(int synset) { return ImagenetSynsets()[LabelOf(synset) - 1].id; }

Image MakeImage(int number) {
  return Draw({.height = 30,
               .width = 40,
               .label = number % 7,
               .number = static_cast<uint64_t>(number)})
      .image;
}

// Makes the archives and knows what the records must contain.
class ImagenetTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteText(folder_ / "ILSVRC2012_img_train.tar", TrainTar());
    WriteText(folder_ / "ILSVRC2012_img_val.tar", ValidationTar());
    WriteText(folder_ / "annotations.tar.gz", BoxesTar());
    options_ = {.dataset = &FindDataset("imagenet"),
                .raw_dir = folder_.path(),
                .output_dir = folder_ / "out",
                .threads = 2,
                .train_shards = 8,
                .validation_shards = 2};
  }

  // Returns the bytes of a training image. As in ImageNet, a PNG and a CMYK JPEG are among them.
  std::string TrainBytes(const std::string& name) const {
    if (name == png_name_) return EncodePng(MakeImage(1).view());
    if (name == cmyk_name_) return ReadText(TestData() + "/io_images/cmyk.jpg");
    return jpegs_.at(name);
  }

  std::string TrainTar() {
    std::string outer;
    for (int s = kSynsets - 1; s >= 0; --s) {  // not in the order of labels
      std::string inner;
      for (int i = kImagesPerSynset - 1; i >= 0; --i) {
        const std::string name = fmt::format("{}_{}.JPEG", IdOf(s), i);
        names_.push_back({LabelOf(s), name});
        jpegs_[name] = EncodeJpeg(MakeImage(s * kImagesPerSynset + i).view(), 85);
        inner += TarEntry({name, TrainBytes(name)});
      }
      outer += TarEntry({fmt::format("{}.tar", IdOf(s)), inner + TarEnd()});
    }
    std::sort(names_.begin(), names_.end());
    return outer + TarEnd();
  }

  static std::string ValidationTar() {
    std::string tar;
    for (int i = 1; i <= kValidation; ++i)
      tar += TarEntry({fmt::format("ILSVRC2012_val_{:08}.JPEG", i),
                       EncodeJpeg(MakeImage(1000 + i).view(), 85)});
    return tar + TarEnd();
  }

  std::string BoxesTar() const {
    return TarEntry({fmt::format("{0}/{0}_0.xml", IdOf(2)),
                     Annotation(40, 30,
                                {{std::string(IdOf(2)), 10, 6, 30, 15},
                                 {std::string(IdOf(2)), 4, 3, 8, 6},
                                 {std::string(IdOf(3)), 1, 1, 2, 2}})}) +
           TarEnd();
  }

  std::map<std::string, std::string> Records(std::string_view split) {
    std::map<std::string, std::string> records;  // by file name
    order_.clear();
    for (const fs::path& shard : FindShards(*options_.dataset, split, options_.output_dir)) {
      const auto source = OpenRecords(shard);
      TfRecordReader reader(*source);
      while (const auto record = reader.Next()) {
        FeatureQuery name[] = {{"image/filename"}};
        FindFeatures(*record, name);
        order_.emplace_back(SingleBytes(name[0]).value());
        EXPECT_TRUE(records.emplace(order_.back(), *record).second) << order_.back() << " twice";
      }
    }
    return records;
  }

  TemporaryFolder folder_;
  BuildOptions options_;
  std::string png_name_ = fmt::format("{}_1.JPEG", IdOf(4));
  std::string cmyk_name_ = fmt::format("{}_2.JPEG", IdOf(5));
  std::map<std::string, std::string> jpegs_;
  std::vector<std::pair<int, std::string>> names_;  // label, file name: sorted
  std::vector<std::string> order_;                  // file names in the order of the records
};

std::map<std::string, FeatureQuery> Features(const std::string& record) {
  std::map<std::string, FeatureQuery> features;
  for (const FeatureQuery& feature : ListFeatures(record)) features.emplace(feature.key, feature);
  return features;
}

TEST_F(ImagenetTest, WritesTfSlimsFeatures) {
  BuildImagenet(options_);
  const auto records = Records("train");
  ASSERT_EQ(records.size(), size_t{kSynsets * kImagesPerSynset});
  const std::string name = fmt::format("{}_0.JPEG", IdOf(2));
  auto features = Features(records.at(name));
  EXPECT_EQ(features.size(), 15u);
  EXPECT_THAT(AllInt64(features["image/height"]), ElementsAre(30));
  EXPECT_THAT(AllInt64(features["image/width"]), ElementsAre(40));
  EXPECT_THAT(AllBytes(features["image/colorspace"]), ElementsAre("RGB"));
  EXPECT_THAT(AllInt64(features["image/channels"]), ElementsAre(3));
  EXPECT_THAT(AllBytes(features["image/format"]), ElementsAre("JPEG"));
  EXPECT_THAT(AllInt64(features["image/class/label"]), ElementsAre(201));
  EXPECT_THAT(AllBytes(features["image/class/synset"]), ElementsAre(IdOf(2)));
  EXPECT_THAT(AllBytes(features["image/class/text"]), ElementsAre(ImagenetSynsets()[200].text));
  EXPECT_THAT(AllBytes(features["image/filename"]), ElementsAre(name));
  EXPECT_THAT(AllBytes(features["image/encoded"]), ElementsAre(jpegs_[name]));
  EXPECT_THAT(AllFloats(features["image/object/bbox/xmin"]), ElementsAre(0.1f, 0.25f));
  EXPECT_THAT(AllFloats(features["image/object/bbox/ymin"]), ElementsAre(0.1f, 0.2f));
  EXPECT_THAT(AllFloats(features["image/object/bbox/xmax"]), ElementsAre(0.2f, 0.75f));
  EXPECT_THAT(AllFloats(features["image/object/bbox/ymax"]), ElementsAre(0.2f, 0.5f));
  EXPECT_THAT(AllInt64(features["image/object/bbox/label"]), ElementsAre(201, 201));

  auto without = Features(records.at(fmt::format("{}_1.JPEG", IdOf(2))));
  EXPECT_THAT(AllFloats(without["image/object/bbox/xmin"]), IsEmpty());
  EXPECT_TRUE(without.contains("image/object/bbox/label"));
}

TEST_F(ImagenetTest, WritesRecordsInTfSlimsOrder) {
  BuildImagenet(options_);
  Records("train");
  std::vector<std::pair<int, std::string>> want = names_;
  PythonRandom(12345).Shuffle(want);
  ASSERT_EQ(order_.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(order_[i], want[i].second);
}

TEST_F(ImagenetTest, ConvertsPngAndCmykToRgbJpegs) {
  BuildImagenet(options_);
  const auto records = Records("train");
  for (const std::string& name : {png_name_, cmyk_name_}) {
    auto features = Features(records.at(name));
    const std::string_view bytes = SingleBytes(features["image/encoded"]).value();
    EXPECT_TRUE(IsJpeg(bytes));
    EXPECT_EQ(JpegChannels(bytes), 3);
    Image before;
    Image after;
    DecodeImage(TrainBytes(name), 3, &before);
    DecodeImage(bytes, 3, &after);
    EXPECT_EQ(SingleInt64(features["image/height"]), before.height);
    ASSERT_EQ(before.pixels.size(), after.pixels.size());
    EXPECT_EQ(bytes, EncodeJpeg(before.view(), 100));
    double difference = 0;
    for (size_t i = 0; i < before.pixels.size(); ++i)
      difference += std::abs(before.pixels[i] - after.pixels[i]);
    // With TensorFlow's decode_jpeg and encode_jpeg the difference is 6.45 for the CMYK image,
    // because encoding halves the resolution of chroma.
    EXPECT_LT(difference / static_cast<double>(before.pixels.size()), 6.5) << name;
  }
}

TEST_F(ImagenetTest, TakesValidationLabelsFromTheList) {
  BuildImagenet(options_);
  const auto records = Records("validation");
  ASSERT_EQ(records.size(), size_t{kValidation});
  for (int i = 1; i <= kValidation; ++i) {
    auto features = Features(records.at(fmt::format("ILSVRC2012_val_{:08}.JPEG", i)));
    EXPECT_EQ(SingleInt64(features["image/class/label"]), ImagenetValidationLabels()[i - 1]);
  }
  const auto first = Features(records.at("ILSVRC2012_val_00000001.JPEG"));
  EXPECT_EQ(SingleBytes(first.at("image/class/synset")), "n01751748");
  const std::string labels = ReadText(folder_ / "out/labels.txt");
  EXPECT_TRUE(labels.starts_with("0:background\n1:tench, Tinca tinca\n"));
  EXPECT_EQ(std::count(labels.begin(), labels.end(), '\n'), 1001);
}

// Kaggle and torchvision distribute or make such folders.
TEST_F(ImagenetTest, ExtractedFoldersGiveTheSameRecords) {
  BuildImagenet(options_);
  const auto train = Records("train");
  const std::vector<std::string> order = order_;
  const auto validation = Records("validation");
  options_.raw_dir = folder_ / "raw";
  options_.output_dir = folder_ / "out2";
  options_.bounding_boxes = folder_ / "annotations.tar.gz";
  const auto write = [&](const fs::path& file, const std::string& bytes) {
    fs::create_directories(file.parent_path());
    WriteText(file, bytes);
  };
  const fs::path raw = options_.raw_dir;
  for (const auto& [label, name] : names_)
    write(raw / "train" / ImagenetSynsets()[label - 1].id / name, TrainBytes(name));
  for (const auto& [name, record] : validation)
    write(raw / "val" / name,
          std::string(SingleBytes(Features(record).at("image/encoded")).value()));
  BuildImagenet(options_);
  EXPECT_EQ(Records("train"), train);
  EXPECT_EQ(order_, order);
  EXPECT_EQ(Records("validation"), validation);

  for (const auto& [name, record] : validation) {
    const fs::path to =
        raw / "val2" / SingleBytes(Features(record).at("image/class/synset")).value();
    fs::create_directories(to);
    fs::rename(raw / "val" / name, to / name);
  }
  fs::remove(raw / "val");
  fs::rename(raw / "val2", raw / "val");
  options_.output_dir = folder_ / "out3";
  BuildImagenet(options_);
  EXPECT_EQ(Records("validation"), validation);

  fs::rename(raw / "train" / IdOf(0), raw / "train/tench");
  EXPECT_THAT(TextOf<DataError>([&] { BuildImagenet(options_); }),
              HasSubstr("raw/train: unexpected folder: got tench, want folders with the names of "
                        "the 1000 synsets, such as n01440764; for classes of your own pass "
                        "\x1f$(dataset_name)=folder"));
}

TEST_F(ImagenetTest, WritesOnlyMissingShardsAndVerifies) {
  BuildImagenet(options_);
  const auto before = Records("train");
  const fs::path shard = folder_ / "out/train-00003-of-00008";
  fs::remove(shard);
  std::vector<std::string> reports;
  options_.progress = [&](std::string_view split, int64_t done, int64_t total) {
    reports.push_back(fmt::format("{} {}/{}", split, done, total));
  };
  BuildImagenet(options_);
  EXPECT_THAT(reports, testing::Contains("validation 24/24"));
  EXPECT_THAT(reports, testing::Contains("train 35/40"));
  EXPECT_EQ(reports.back(), "train 40/40");
  EXPECT_EQ(Records("train"), before);
  const VerifyReport report =
      VerifyShards({.shards = FindShards(*options_.dataset, "train", options_.output_dir),
                    .dataset = options_.dataset,
                    .num_classes = 1001});
  EXPECT_THAT(report.bad, IsEmpty());
  EXPECT_EQ(report.num_good, 40);
  EXPECT_EQ(report.class_counts.at(201), 4);
}

TEST_F(ImagenetTest, NamesArchiveImageAndByteOfDamage) {
  const std::string tar = ReadText(folder_ / "ILSVRC2012_img_val.tar");
  std::string damaged = tar;
  damaged.replace(512, 4, "notJ");
  WriteText(folder_ / "ILSVRC2012_img_val.tar", damaged);
  EXPECT_THAT(
      TextOf<DataError>([&] { BuildImagenet(options_); }),
      HasSubstr("ILSVRC2012_img_val.tar: ILSVRC2012_val_00000001.JPEG at byte 512: [io.image]"));
  WriteText(folder_ / "ILSVRC2012_img_val.tar", tar.substr(0, 3000));
  EXPECT_THAT(TextOf<DataError>([&] { BuildImagenet(options_); }),
              HasSubstr("ILSVRC2012_img_val.tar: header at byte "));
  WriteText(folder_ / "ILSVRC2012_img_val.tar",
            TarEntry({"ILSVRC2012_val_00050001.JPEG", "x"}) + TarEnd());
  EXPECT_THAT(
      TextOf<DataError>([&] { BuildImagenet(options_); }),
      HasSubstr("got ILSVRC2012_val_00050001.JPEG, want ILSVRC2012_val_00000001.JPEG to 00050000"));
  const std::string twice = TarEntry({"ILSVRC2012_val_00000002.JPEG", "x"});
  WriteText(folder_ / "ILSVRC2012_img_val.tar", twice + twice + TarEnd());
  EXPECT_THAT(TextOf<DataError>([&] { BuildImagenet(options_); }),
              HasSubstr("ILSVRC2012_img_val.tar: ILSVRC2012_val_00000002.JPEG: twice in the "
                        "archive: got it at bytes 512 and 1536, want it once"));
  fs::remove(folder_ / "ILSVRC2012_img_val.tar");
  const std::string synset =
      TarEntry({fmt::format("{}.tar", IdOf(0)),
                TarEntry({fmt::format("{}_1.JPEG", IdOf(0)), "x"}) + TarEnd()});
  WriteText(folder_ / "ILSVRC2012_img_train.tar", synset + synset + TarEnd());
  EXPECT_THAT(TextOf<DataError>([&] { BuildImagenet(options_); }),
              HasSubstr(fmt::format("{}.tar: twice in the archive", IdOf(0))));
  WriteText(folder_ / "ILSVRC2012_img_train.tar", TarEntry({"n00000001.tar", TarEnd()}) + TarEnd());
  EXPECT_THAT(TextOf<DataError>([&] { BuildImagenet(options_); }),
              HasSubstr("got n00000001.tar, want SYNSET.tar of one of the 1000 synsets"));
  fs::remove(folder_ / "ILSVRC2012_img_train.tar");
  EXPECT_THAT(TextOf<DataError>([&] { BuildImagenet(options_); }),
              HasSubstr("no archives or folders: want ILSVRC2012_img_train.tar or "
                        "train/SYNSET/*.JPEG, and ILSVRC2012_img_val.tar or val/*.JPEG"));
}

}  // namespace
}  // namespace carole::io
