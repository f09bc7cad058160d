#include "io/archives/tar.h"

#include "tests/io/archives/tar_bytes.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> NamesOf(const std::string& bytes) {
  const MemorySource source("a.tar", bytes);
  TarReader reader(source);
  std::vector<std::string> names;
  while (const auto file = reader.Next()) names.push_back(file->name);
  return names;
}

std::string ErrorOf(const std::string& bytes) {
  return TextOf<DataError>([&] { NamesOf(bytes); });
}

TEST(Tar, ListsFilesWithTheirOffsets) {
  const std::string bytes = TarEntry({"./dir/", "", '5'}) + TarEntry({"./dir/a.txt", "hello"}) +
                            TarEntry({"b", std::string(513, 'b')}) + TarEntry({"empty", ""}) +
                            TarEnd();
  const MemorySource source("a.tar", bytes);
  TarReader reader(source);
  const auto a = reader.Next().value();
  EXPECT_EQ(a.name, "dir/a.txt");
  EXPECT_EQ(bytes.substr(a.offset, a.bytes), "hello");
  const auto b = reader.Next().value();
  EXPECT_EQ(b.offset, 2048u);
  EXPECT_EQ(b.bytes, 513u);
  EXPECT_EQ(reader.Next().value().name, "empty");
  EXPECT_FALSE(reader.Next());
}

TEST(Tar, ReadsAnArchiveInsideAnArchiveInPlace) {
  const std::string inner = TarEntry({"x.JPEG", "pixels"}) + TarEnd();
  const std::string bytes =
      TarEntry({"first", "1"}) + TarEntry({"n01440764.tar", inner}) + TarEnd();
  const MemorySource source("train.tar", bytes);
  TarReader outer(source);
  outer.Next();
  const TarFile archive = outer.Next().value();
  TarReader reader(source, archive.offset, archive.offset + archive.bytes);
  const TarFile file = reader.Next().value();
  EXPECT_EQ(bytes.substr(file.offset, file.bytes), "pixels");
  EXPECT_FALSE(reader.Next());
}

TEST(Tar, DoesNotReadPastTheEndOfAnInnerArchive) {
  const std::string inner =
      TarEntry({"x.JPEG", "pixels"});  // no end mark; the outer archive's follows
  const std::string bytes = TarEntry({"n01440764.tar", inner}) + TarEnd();
  const MemorySource source("train.tar", bytes);
  TarReader outer(source);
  const TarFile archive = outer.Next().value();
  TarReader reader(source, archive.offset, archive.offset + archive.bytes);
  reader.Next();
  EXPECT_THAT(TextOf<DataError>([&] { reader.Next(); }),
              HasSubstr("truncated archive: got 0 bytes"));
}

TEST(Tar, ReadsLongNamesOfGnuAndPax) {
  const std::string name = "d/" + std::string(150, 'n') + ".JPEG";
  EXPECT_THAT(NamesOf(TarEntry({"././@LongLink", name + '\0', 'L'}) + TarEntry({name, "x"}) +
                      TarEntry({"next", "y"}) + TarEnd()),
              ElementsAre(name, "next"));
  EXPECT_THAT(
      NamesOf(TarEntry({"pax_global_header", PaxRecord("comment", "c"), 'g'}) +
              TarEntry({"PaxHeaders/a", PaxRecord("mtime", "1.5") + PaxRecord("path", name), 'x'}) +
              TarEntry({"short", "x"}) + TarEntry({"next", "y"}) + TarEnd()),
      ElementsAre(name, "next"));
}

TEST(Tar, ReadsUstarPrefixesAndBinarySizes) {
  TarMember member{.name = "a", .bytes = "12345", .size = FromHex("8000000000000000000000 05")};
  EXPECT_THAT(NamesOf(TarEntry(member) + TarEnd()), ElementsAre("a"));
  std::string entry = TarEntry({"name", "x"});
  entry.replace(345, 6, "folder");
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(entry[i]);
  entry.replace(148, 6, fmt::format("{:06o}", sum));
  EXPECT_THAT(NamesOf(entry + TarEnd()), ElementsAre("folder/name"));
}

TEST(Tar, RefusesTruncatedArchives) {
  const std::string whole = TarEntry({"a", "hello"}) + TarEnd();
  EXPECT_EQ(
      ErrorOf(whole.substr(0, 515)),
      "[io.tar] a.tar: header at byte 0: truncated archive: a: got 3 bytes to the end, want 5; "
      "re-copy the archive");
  EXPECT_THAT(ErrorOf(whole.substr(0, 1024)),
              HasSubstr("header at byte 1024: truncated archive: got 0"));
  EXPECT_THAT(ErrorOf(whole.substr(0, 100)), HasSubstr("got 100 bytes to the end, want 512"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("truncated archive"));
  EXPECT_THAT(ErrorOf(TarEntry({"x", PaxRecord("path", "abc"), 'x'}).substr(0, 514)),
              HasSubstr("truncated archive: got 2 bytes"));
}

TEST(Tar, NamesTheDamageAndItsOffset) {
  DamagedBytes bytes{TarEntry({"a", "hello"}) + TarEntry({"b", "x"}) + TarEnd()};
  bytes.FlipBit(1024 + 3);
  EXPECT_THAT(ErrorOf(bytes.bytes), HasSubstr("header at byte 1024: checksum mismatch"));
  EXPECT_THAT(ErrorOf(TarEntry({.name = "a", .size = "not a size"}) + TarEnd()),
              HasSubstr("invalid size"));
  EXPECT_THAT(
      ErrorOf(TarEntry({.name = "a", .size = FromHex("ff ffffffffffffffffffffff")}) + TarEnd()),
      HasSubstr("invalid size"));
  EXPECT_THAT(ErrorOf(TarEntry({.name = "a", .size = "77777777777"}) + TarEnd()),
              HasSubstr("want 8589934591; re-copy the archive"));
  for (const char* pax : {"garbage", "9 path", "99 path=x\n", "0 path=x\n", "4 \n"})
    EXPECT_THAT(ErrorOf(TarEntry({"p", pax, 'x'}) + TarEnd()), HasSubstr("malformed pax record"))
        << pax;
  EXPECT_THAT(ErrorOf(TarEntry({"p", PaxRecord("size", "99999999999999999999"), 'x'}) + TarEnd()),
              HasSubstr("invalid size"));
  EXPECT_THAT(ErrorOf(TarHeader({.name = "p", .type = 'L', .size = "00100000000"})),
              HasSubstr("extended header too long: got 16777216 bytes, want at most 65536"));
}

TEST(Tar, RefusesPathsOutOfTheFolderLinksDevicesAndSparseFiles) {
  for (const char* name : {"../x", "a/../../x", "/etc/passwd", "a/.."}) {
    EXPECT_THAT(ErrorOf(TarEntry({name, "x"}) + TarEnd()),
                HasSubstr(fmt::format("path leads out of the folder: got {}", name)));
  }
  EXPECT_THAT(
      ErrorOf(TarEntry({"p", PaxRecord("path", "../x"), 'x'}) + TarEntry({"a", ""}) + TarEnd()),
      HasSubstr("path leads out of the folder: got ../x"));
  EXPECT_THAT(NamesOf(TarEntry({"..a/b..", "x"}) + TarEnd()), ElementsAre("..a/b.."));

  EXPECT_THAT(ErrorOf(TarEntry({"a", "", '1'}) + TarEnd()), HasSubstr("a is a hard link"));
  EXPECT_THAT(ErrorOf(TarEntry({"a", "", '2'}) + TarEnd()), HasSubstr("a is a symbolic link"));
  EXPECT_THAT(ErrorOf(TarEntry({"a", "", '3'}) + TarEnd()), HasSubstr("a is a device"));
  EXPECT_THAT(ErrorOf(TarEntry({"a", "", 'S'}) + TarEnd()), HasSubstr("a is a sparse file"));

  EXPECT_THAT(ErrorOf(TarEntry({"p", PaxRecord("GNU.sparse.major", "1"), 'x'}) + TarEnd()),
              HasSubstr("sparse file; make the archive without tar's --sparse"));
}

}  // namespace
}  // namespace carole::io
