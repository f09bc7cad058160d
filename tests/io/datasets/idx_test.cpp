#include "io/datasets/idx.h"

#include "io/datasets/cifar.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

// Three images of 2x2 and their labels.
DamagedBytes Images() {
  return {FromHex("00000803 00000003 00000002 00000002 000102030405060708090a0b")};
}
DamagedBytes Labels() { return {FromHex("00000801 00000003 070809")}; }

std::unique_ptr<Source> Open(const DamagedBytes& file) {
  return std::make_unique<MemorySource>("train", file.bytes);
}

std::string ErrorOf(const DamagedBytes& images) {
  return TextOf<DataError>([&] { ReadIdxImages(Open(images)); });
}

TEST(Idx, ReadsImagesAndLabels) {
  const IdxImages images = ReadIdxImages(Open(Images()));
  EXPECT_EQ(images.count, 3);
  EXPECT_EQ(images.height, 2);
  EXPECT_EQ(images.width, 2);
  EXPECT_EQ(ToHex(images.pixels), "000102030405060708090a0b");
  EXPECT_EQ(ReadIdxLabels(Open(Labels())), "\x07\x08\x09");
}

TEST(Idx, RejectsASizeOtherThanTheHeaders) {
  DamagedBytes shorter = Images();
  shorter.ShrinkSize(1);
  EXPECT_EQ(ErrorOf(shorter),
            "[io.idx] train: truncated data: got 11 bytes after the header, want 12");
  EXPECT_EQ(ErrorOf({Images().bytes + "x"}),
            "[io.bytes] train: too large: got more than 28 bytes, want at most 28");
  EXPECT_EQ(ErrorOf({Images().bytes.substr(0, 9)}),
            "[io.idx] train: truncated header: got 9 bytes, want 16");
}

TEST(Idx, ChecksTheHeader) {
  EXPECT_THAT(TextOf<DataError>([] { ReadIdxImages(Open(Labels())); }),
              HasSubstr("truncated header"));
  DamagedBytes floats = Images();
  floats.SetByte(2, 0x0d);
  EXPECT_EQ(ErrorOf(floats),
            "[io.idx] train: wrong magic: got 0x00000d03, want 0x00000803; is this an IDX file?");
  DamagedBytes huge = Images();
  for (size_t at : {4, 8, 12}) huge.SetByte(at, '\x7f');
  EXPECT_EQ(ErrorOf(huge),
            "[io.idx] train: size 0 out of range: got 2130706435, want at least 1, and at most "
            "1073741824 bytes in total");
}

TEST(Idx, FindsAllSpellings) {
  for (const char* name :
       {"train-images-idx3-ubyte", "train-images.idx3-ubyte", "train-images-idx3-ubyte.gz"}) {
    const TemporaryFolder folder;
    WriteText(folder / name, "x");
    EXPECT_EQ(OpenIdx(folder.path(), "train-images", 3)->name(), (folder / name));
  }
  const TemporaryFolder empty;
  EXPECT_THAT(TextOf<DataError>([&] { OpenIdx(empty.path(), "t10k-labels", 1); }),
              HasSubstr(empty.path() +
                        ": no such file: want t10k-labels-idx1-ubyte or t10k-labels.idx1-ubyte"));
}

TEST(Cifar, ConvertsPlanesToPixels) {
  std::string record(kCifarRecordBytes, '\0');
  record[0] = 6;
  record[1 + 5] = 1;         // red of pixel 5
  record[1 + 1024 + 5] = 2;  // green
  record[1 + 2048 + 5] = 3;  // blue
  std::vector<uint8_t> pixels(kCifarRecordBytes - 1);
  EXPECT_EQ(CifarImage(record, pixels.data()), 6);
  EXPECT_EQ(pixels[15], 1);
  EXPECT_EQ(pixels[16], 2);
  EXPECT_EQ(pixels[17], 3);
}

TEST(Cifar, RejectsIncompleteRecords) {
  EXPECT_THAT(TextOf<DataError>([] {
                ReadCifarBatch(MemorySource("data_batch_1.bin", std::string(30729999, '\0')));
              }),
              HasSubstr("[io.cifar] data_batch_1.bin: wrong size: got 30729999 bytes, want whole "
                        "records of 3073"));
}

}  // namespace
}  // namespace carole::io
