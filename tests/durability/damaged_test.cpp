// Damages a small checkpoint: flips bytes and truncates it. Reading must refuse it, or read exactly
// what was written.
#include <gmock/gmock.h>

#include <algorithm>

#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/error.h"
#include "tests/durability/example_checkpoint.h"
#include "tests/durability/settings.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

class DamagedTest : public ::testing::Test {
 protected:
  DamagedTest() {
    io::Checkpoint checkpoint = ExampleCheckpoint(3);
    for (io::CheckpointVariable* v : {&checkpoint.variables[0], &checkpoint.slots[0]}) {
      v->data.resize(40);
      v->shape = Shape({40});
    }
    io::WriteCheckpoint(checkpoint, path_);
    digest_ = checkpoint.digest;
    whole_ = ReadText(path_);
  }

  // Writes the bytes and reads the checkpoint. Counts what happens.
  void Read(const std::string& bytes, const std::string& damage) {
    WriteText(path_, bytes);
    try {
      const io::Checkpoint checkpoint = io::ReadCheckpoint(path_);
      EXPECT_EQ(io::ComputeDigest(checkpoint), digest_) << damage;
      ++identical_;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << damage << ": " << error.what();
      ++refused_;
    }
  }

  void Print(const char* what) const {
    std::printf("%s of a checkpoint of %zu bytes: %d refused, %d read as identical\n", what,
                whole_.size(), refused_, identical_);
  }

  // The sample of the normal suite is one of this many bytes. It is prime, so that it meets all
  // bytes of the library's structures.
  static size_t Stride() { return TestSettings().exhaustive ? 1 : 13; }

  TemporaryFolder folder_;
  const std::string path_ = io::CheckpointPath(folder_.path(), 3);
  uint64_t digest_ = 0;
  std::string whole_;
  int refused_ = 0, identical_ = 0;
};

TEST_F(DamagedTest, FlippedBytesAreRefusedOrHarmless) {
  // All bits, one bit of the low half, and the sign bit.
  for (const int mask : {0xFF, 0x01, 0x80}) {
    for (size_t i = 0; i < whole_.size(); i += Stride()) {
      std::string bytes = whole_;
      bytes[i] = static_cast<char>(bytes[i] ^ mask);
      Read(bytes, "byte " + std::to_string(i) + " xor " + std::to_string(mask));
    }
  }
  Print("Flipped bytes");
  EXPECT_GT(refused_, identical_ / 4);
}

TEST_F(DamagedTest, TruncatedFilesAreRefused) {
  for (size_t size = 0; size < whole_.size(); size += Stride())
    Read(whole_.substr(0, size), "truncated to " + std::to_string(size));
  Print("Truncations");
  EXPECT_EQ(identical_, 0);
}

TEST_F(DamagedTest, ZeroedAndRepeatedBlocksAreRefusedOrHarmless) {
  constexpr size_t kBlock = 512;
  for (size_t at = 0; at < whole_.size(); at += kBlock) {
    std::string bytes = whole_;
    const size_t count = std::min(kBlock, whole_.size() - at);
    bytes.replace(at, count, count, '\0');
    Read(bytes, "zeros at " + std::to_string(at));
    bytes = whole_;
    bytes.replace(at, count, whole_, 0, count);
    Read(bytes, "first block at " + std::to_string(at));
  }
  Print("Zeroed and repeated blocks");
}

}  // namespace
}  // namespace carole::testing
