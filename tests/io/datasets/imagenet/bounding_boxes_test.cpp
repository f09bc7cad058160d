#include "io/datasets/imagenet/bounding_boxes.h"

#include "io/datasets/imagenet/imagenet_lists.h"
#include "tests/io/archives/tar_bytes.h"
#include "tests/io/damage.h"
#include "tests/io/datasets/annotation.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Boxes(const std::string& xml) {
  return AnnotatedBoxes(xml, "n01440764_18.xml", "n01440764");
}

TEST(ImagenetLists, AreComplete) {
  EXPECT_EQ(ImagenetSynsets().size(), 1000u);
  EXPECT_EQ(ImagenetSynsets()[0].id, "n01440764");
  EXPECT_EQ(ImagenetSynsets()[0].text, "tench, Tinca tinca");
  EXPECT_EQ(ImagenetSynsets()[999].text, "toilet tissue, toilet paper, bathroom tissue");
  EXPECT_EQ(ImagenetLabel("n01440764"), 1);
  EXPECT_EQ(ImagenetLabel("n15075141"), 1000);
  EXPECT_EQ(ImagenetLabel("n01440765"), 0);
  std::array<int, 1001> counts{};
  for (int label : ImagenetValidationLabels()) ++counts.at(static_cast<size_t>(label));
  EXPECT_EQ(counts[0], 0);
  for (int label = 1; label <= 1000; ++label) EXPECT_EQ(counts[label], 50);
  // The first and the last label of the official list are n01751748 and n02437616.
  EXPECT_EQ(ImagenetSynsets()[ImagenetValidationLabels().front() - 1].id, "n01751748");
  EXPECT_EQ(ImagenetSynsets()[ImagenetValidationLabels().back() - 1].id, "n02437616");
}

TEST(BoundingBoxes, AreFractionsSortedAsText) {
  EXPECT_THAT(
      Boxes(Annotation(500, 400, {{"n01440764", 100, 40, 300, 200}, {"n01440764", 3, 4, 9, 8}})),
      ElementsAre("0.0060,0.0100,0.0180,0.0200", "0.2000,0.1000,0.6000,0.5000"));
}

TEST(BoundingBoxes, AreOrderedAndClamped) {
  EXPECT_THAT(Boxes(Annotation(100, 100, {{"n01440764", 80, 110, 20, -5}})),
              ElementsAre("0.2000,0.0000,0.8000,1.0000"));
}

TEST(BoundingBoxes, LeavesOutEmptyBoxesAndOtherClasses) {
  EXPECT_THAT(
      Boxes(Annotation(100, 100,
                       {{"n01440764", 10, 10, 10, 20},     // empty: no width
                        {"n01440764", 120, 10, 130, 20},   // outside of the image
                        {"n01443537", 10, 10, 20, 20},     // another of the 1000 synsets
                        {"n00000001", 10, 10, 20, 20}})),  // a parent synset, not one of the 1000
      ElementsAre("0.1000,0.1000,0.2000,0.2000"));
}

TEST(BoundingBoxes, RefusesBadNumbers) {
  const auto error = [](const std::string& xml) { return TextOf<DataError>([&] { Boxes(xml); }); };
  const std::string good = Annotation(100, 100, {{"n01440764", 10, 10, 20, 20}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string xml = good;
    return xml.replace(xml.find(from), from.size(), to);
  };
  EXPECT_EQ(error(with("<width>100", "<width>0")),
            "[io.boxes] n01440764_18.xml: <width>: got 0, want at least 1");
  EXPECT_THAT(error(with("<width>100", "<width>1e999")), HasSubstr("got '1e999', want a number"));
  EXPECT_THAT(error(with("<width>100", "<width>nan")), HasSubstr("got 'nan', want a number"));
  EXPECT_THAT(error(with("<xmin>10", "<xmin>ten")), HasSubstr("<xmin>: got 'ten', want a number"));
  EXPECT_THAT(error(with("<xmin>10</xmin>", "")), HasSubstr("<bndbox>: missing element <xmin>"));
  EXPECT_THAT(error("<annotation/>"), HasSubstr("<annotation>: missing element <size>"));
  EXPECT_THAT(Boxes(with("<xmax>20", "<xmax>1e300")), ElementsAre("0.1000,0.1000,1.0000,0.2000"));
}

TEST(BoundingBoxes, ReadsTheSameFromCsvAndTar) {
  const TemporaryFolder folder;
  WriteText(folder / "boxes.csv",
            "n01440764_18.JPEG,0.0060,0.0100,0.0180,0.0200\r\nn01440764_18.JPEG,0.2,0.1,0.6,0.5\n");
  WriteText(folder / "boxes.tar",
            TarEntry({"n01440764/", "", '5'}) +
                TarEntry({"n01440764/n01440764_18.xml",
                          Annotation(500, 400,
                                     {{"n01440764", 100, 40, 300, 200}, {"fish", 3, 4, 9, 8}})}) +
                TarEntry({"n00000001/n00000001_1.xml", "is not read"}) + TarEnd());
  for (const char* name : {"boxes.csv", "boxes.tar"}) {
    const BoundingBoxes boxes = BoundingBoxes::Load(folder / name);
    EXPECT_EQ(boxes.num_images(), 1u);
    EXPECT_THAT(boxes.Find("n01440764_18.JPEG"),
                ElementsAre(Box{.ymin = 0.01f, .xmin = 0.006f, .ymax = 0.02f, .xmax = 0.018f},
                            Box{.ymin = 0.1f, .xmin = 0.2f, .ymax = 0.5f, .xmax = 0.6f}));
    EXPECT_THAT(boxes.Find("n01440764_19.JPEG"), IsEmpty());
  }
}

TEST(BoundingBoxes, NamesTheDamagedLineOrMember) {
  const TemporaryFolder folder;
  const auto error = [&](const char* name, const std::string& text) {
    WriteText(folder / name, text);
    return TextOf<DataError>([&] { BoundingBoxes::Load(folder / name); });
  };
  EXPECT_THAT(error("b.csv", "a.JPEG,0,0,1,1\nb.JPEG,0,0,1\n"),
              HasSubstr("b.csv: line 2: got '', want a number"));
  EXPECT_THAT(error("b.csv", "a.JPEG,0,0,1,1.5\n"), HasSubstr("line 1: got 1.5, want 0 to 1"));
  EXPECT_THAT(error("b.csv", "a.JPEG,0,0,1,1,1\n"), HasSubstr("line 1: got more than 4 numbers"));
  EXPECT_THAT(error("b.tar", TarEntry({"n01440764/x.xml", "<a>"}) + TarEnd()),
              HasSubstr("b.tar: n01440764/x.xml: byte 3: truncated"));
  EXPECT_THAT(error("b.tar", TarEntry({"n01440764/x.xml", std::string(2 << 20, ' ')}) + TarEnd()),
              HasSubstr("too long: got 2097152 bytes"));
}

}  // namespace
}  // namespace carole::io
