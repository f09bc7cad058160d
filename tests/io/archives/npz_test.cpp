// The files in tests/data/npz were written by NumPy's savez and savez_compressed.
#include "io/archives/npz.h"

#include "tests/io/damage.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DamagedBytes File(const std::string& name) {
  return {ReadText(TestData() + "/npz/" + name + ".npz")};
}

ByteArray ReadImages(const DamagedBytes& file) {
  return NpzFile(std::make_unique<MemorySource>("a.npz", file.bytes)).Read("x_train", 3);
}

std::string ErrorOf(const std::string& name, std::string_view array, size_t rank) {
  const NpzFile file(std::make_unique<MemorySource>("a.npz", File(name).bytes));
  return TextOf<DataError>([&] { file.Read(array, rank); });
}

TEST(Npz, ReadsStoredAndDeflatedArrays) {
  for (const char* name : {"stored", "deflated"}) {
    const ByteArray images = ReadImages(File(name));
    EXPECT_THAT(images.shape, ElementsAre(3, 2, 2)) << name;
    EXPECT_EQ(ToHex(images.bytes), "000102030405060708090a0b") << name;
    const NpzFile file(std::make_unique<MemorySource>(name, File(name).bytes));
    EXPECT_EQ(ToHex(file.Read("y_train", 1).bytes), "070809") << name;
  }
}

TEST(Npz, RefusesMissingArraysOtherTypesAndOtherShapes) {
  EXPECT_EQ(ErrorOf("stored", "x_test", 3), "[io.npz] a.npz: no member x_test.npy in this archive");

  EXPECT_EQ(ErrorOf("stored", "x_train", 1),
            "[io.npz] a.npz: x_train.npy: wrong shape: got (3, 2, 2), want 1 sizes of 1 or more");

  EXPECT_EQ(ErrorOf("other", "int64", 1),
            "[io.npz] a.npz: int64.npy: unsupported array: got type '<i8' and fortran_order False, "
            "want uint8 and False");
  EXPECT_THAT(ErrorOf("other", "fortran", 2), HasSubstr("fortran_order True"));
  EXPECT_THAT(ErrorOf("other", "scalar", 1), HasSubstr("wrong shape: got ()"));
  EXPECT_THAT(ErrorOf("other", "empty", 1), HasSubstr("wrong shape: got (0,)"));
}

// After damage to any byte, either the file is refused or the array is unchanged, because the byte
// has no meaning (times, spare fields).
TEST(Npz, NeverReturnsAWrongArrayFromADamagedFile) {
  for (const char* name : {"stored", "deflated"}) {
    const ByteArray whole = ReadImages(File(name));
    int refused = 0;
    for (size_t at = 0; at < File(name).bytes.size(); ++at) {
      for (int bit : {0, 7}) {
        DamagedBytes file = File(name);
        file.FlipBit(at, bit);
        try {
          const ByteArray got = ReadImages(file);
          EXPECT_EQ(got.shape, whole.shape) << name << " byte " << at;
          EXPECT_EQ(got.bytes, whole.bytes) << name << " byte " << at;
        } catch (const DataError&) {
          ++refused;
        }
      }
    }
    EXPECT_GT(refused, 300) << name;
  }
}

TEST(Npz, RefusesATruncatedFile) {
  const size_t size = File("deflated").bytes.size();
  for (size_t missing = 1; missing <= size; ++missing) {
    DamagedBytes file = File("deflated");
    file.ShrinkSize(missing);
    EXPECT_THROW(ReadImages(file), DataError) << missing;
  }
  EXPECT_EQ(TextOf<DataError>([] { ReadImages({"x"}); }),
            "[io.npz] a.npz: too short for an .npz file");
  EXPECT_THAT(TextOf<DataError>([] { ReadImages({std::string(100, 'x')}); }),
              HasSubstr("no end-of-directory record of a zip archive"));
}

TEST(Npz, NamesTheDamagedMember) {
  DamagedBytes file = File("stored");
  file.FlipBit(file.bytes.find("PK\x01\x02") - 2);  // in y_train.npy
  const NpzFile npz(std::make_unique<MemorySource>("a.npz", file.bytes));
  EXPECT_THAT(TextOf<DataError>([&] { npz.Read("y_train", 1); }),
              HasSubstr("[io.npz] a.npz: y_train.npy: checksum mismatch: got 0x"));
  file = File("deflated");
  const size_t entry = file.bytes.find("PK\x01\x02");
  file.SetByte(entry + 8, 1);
  EXPECT_EQ(TextOf<DataError>([&] { ReadImages(file); }),
            "[io.npz] a.npz: encrypted archive; want one that is not encrypted");
  file.SetByte(entry + 8, 0);
  file.SetByte(entry + 10, 12);
  EXPECT_EQ(TextOf<DataError>([&] { ReadImages(file); }),
            "[io.npz] a.npz: x_train.npy: unsupported compression: got method 12, want 0 (stored) "
            "or 8 (deflated)");
}

// The directory claims that the first member has 4 GiB less two bytes.
TEST(Npz, ChecksClaimedSizesBeforeItAllocatesMemory) {
  DamagedBytes file = File("stored");
  const size_t entry = file.bytes.find("PK\x01\x02");
  file.SetByte(entry + 24, '\xfe');
  for (size_t i = 25; i < 28; ++i) file.SetByte(entry + i, '\xff');
  EXPECT_EQ(
      TextOf<DataError>([&] { ReadImages(file); }),
      "[io.npz] a.npz: x_train.npy: too large: got 4294967294 bytes, want at most 1073741824");
}

}  // namespace
}  // namespace carole::io
