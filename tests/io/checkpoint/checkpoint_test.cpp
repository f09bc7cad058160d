// Checkpoint files: what was written is read back bit for bit, and damaged files are refused.
#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/checkpoint_writer.h"
#include "io/checkpoint/hdf5.h"
#include "src/core/error.h"
#include "tests/support/temporary_folder.h"

namespace carole::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CheckpointVariable Variable(const std::string& name, const Shape& shape, float first,
                            bool trainable = true) {
  CheckpointVariable v{.name = name, .shape = shape, .trainable = trainable};
  for (int64_t i = 0; i < shape.size(); ++i)
    v.data.push_back(first + 0.25f * static_cast<float>(i));
  return v;
}

Checkpoint Example(int64_t step = 120) {
  Checkpoint c{.step = step, .epoch = 2, .position = 640, .seed = ~uint64_t{0} - 4};
  c.variables = {Variable("net/conv1/weights", {3, 3, 2, 4}, 1),
                 Variable("net/conv1/BatchNorm/beta", {4}, 2),
                 Variable("net/conv1/BatchNorm/gamma", {4}, 3),
                 Variable("net/conv1/BatchNorm/moving_mean", {4}, 4, false),
                 Variable("net/conv1/BatchNorm/moving_variance", {4}, 5, false),
                 Variable("net/fc/weights", {4, 3}, 6),
                 Variable("net/fc/biases", {3}, 7)};
  c.slots = {Variable("net/conv1/weights/Momentum", {3, 3, 2, 4}, -1, false),
             Variable("beta1_power", {}, 0.5f, false), Variable("empty", {0, 3}, 0, false)};
  c.attributes = {{"model_name", "net"}, {"flags", "--batch_size=8 --naïve"}, {"note", ""}};
  return c;
}

void ExpectSame(const CheckpointVariable& got, const CheckpointVariable& want) {
  EXPECT_EQ(got.name, want.name);
  EXPECT_EQ(got.shape, want.shape) << want.name;
  EXPECT_EQ(got.trainable, want.trainable) << want.name;
  ASSERT_EQ(got.data.size(), want.data.size()) << want.name;
  for (size_t i = 0; i < want.data.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(got.data[i]), std::bit_cast<uint32_t>(want.data[i]));
  }
}

void ExpectSame(const Checkpoint& got, const Checkpoint& want) {
  ASSERT_EQ(got.variables.size(), want.variables.size());
  ASSERT_EQ(got.slots.size(), want.slots.size());
  for (size_t i = 0; i < want.variables.size(); ++i)
    ExpectSame(got.variables[i], want.variables[i]);
  for (size_t i = 0; i < want.slots.size(); ++i) ExpectSame(got.slots[i], want.slots[i]);
  EXPECT_EQ(got.step, want.step);
  EXPECT_EQ(got.epoch, want.epoch);
  EXPECT_EQ(got.position, want.position);
  EXPECT_EQ(got.seed, want.seed);
  EXPECT_EQ(got.attributes, want.attributes);
  EXPECT_EQ(got.digest, want.digest);
}

class CheckpointTest : public ::testing::Test {
 protected:
  std::string PathOf(int64_t step) const { return CheckpointPath(folder_.path(), step); }
  std::string Write(int64_t step) const {
    Checkpoint c = Example(step);
    WriteCheckpoint(c, PathOf(step));
    return PathOf(step);
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const CheckpointFile& file : ListCheckpoints(folder_.path())) steps.push_back(file.step);
    return steps;
  }

  TemporaryFolder folder_;
};

// The names of ImageNet's 21,841 classes are longer than one HDF5 attribute.
TEST_F(CheckpointTest, StoresLongAttributes) {
  Checkpoint c = Example();
  for (int i = 0; i < 21841; ++i)
    c.attributes["class_names"] += fmt::format("n{:08}, a rather long name\n", i);
  WriteCheckpoint(c, PathOf(1));
  ExpectSame(ReadCheckpoint(PathOf(1)), c);
}

TEST_F(CheckpointTest, RoundTripIsBitwise) {
  Checkpoint c = Example();
  const float nan_with_payload = std::bit_cast<float>(0x7fc12345u);
  c.variables[0].data[0] = nan_with_payload;
  c.variables[0].data[1] = -0.0f;
  c.variables[0].data[2] = std::numeric_limits<float>::denorm_min();
  c.variables[0].data[3] = -std::numeric_limits<float>::infinity();
  WriteCheckpoint(c, PathOf(120));
  ExpectSame(ReadCheckpoint(PathOf(120)), c);
}

// CheckpointVariable::read is used if memory is short.
TEST_F(CheckpointTest, ElementsReadOnDemandGiveTheSameFile) {
  Checkpoint c = Example();
  WriteCheckpoint(c, PathOf(120));
  Checkpoint live = Example();
  int reads = 0;
  for (auto* variables : {&live.variables, &live.slots}) {
    for (CheckpointVariable& v : *variables)
      v.read = [&reads, data = std::exchange(v.data, {})] { return ++reads, data; };
  }
  WriteCheckpoint(live, PathOf(121));
  ExpectSame(ReadCheckpoint(PathOf(121)), c);
  EXPECT_EQ(reads, 2 * 10);
}

TEST_F(CheckpointTest, DigestDependsOnEverything) {
  Checkpoint c;
  const uint64_t empty = ComputeDigest(c);
  c.step = 1;
  EXPECT_NE(ComputeDigest(c), empty);
  for (auto change :
       {+[](Checkpoint& x) { x.variables[0].data[5] += 1; },
        +[](Checkpoint& x) { x.variables[0].name += "x"; },
        +[](Checkpoint& x) {
          x.variables[5].shape = {2, 6};
        },
        +[](Checkpoint& x) { x.variables[5].trainable = false; },
        +[](Checkpoint& x) { x.slots[1].data[0] = 0; }, +[](Checkpoint& x) { x.position = 0; },
        +[](Checkpoint& x) { x.seed = 0; }, +[](Checkpoint& x) { x.attributes["note"] = "y"; }}) {
    Checkpoint changed = Example();
    change(changed);
    EXPECT_NE(ComputeDigest(changed), ComputeDigest(Example()));
  }
}

TEST_F(CheckpointTest, HeaderHasEverythingExceptElements) {
  const Checkpoint header = ReadCheckpointHeader(Write(7));
  Checkpoint want = Example(7);
  want.digest = ComputeDigest(want);
  for (CheckpointVariable& v : want.variables) v.data.clear();
  for (CheckpointVariable& v : want.slots) v.data.clear();
  ExpectSame(header, want);
}

TEST_F(CheckpointTest, StoresManyLongNames) {
  Checkpoint c;
  for (int i = 0; i < 900; ++i) {
    c.variables.push_back(
        Variable("net/" + std::string(90, 'u') + std::to_string(i) + "/weights", {1}, 1));
  }
  WriteCheckpoint(c, PathOf(0));
  ExpectSame(ReadCheckpoint(PathOf(0)), c);
}

TEST_F(CheckpointTest, RefusesTruncatedFiles) {
  const std::string path = Write(1);
  const std::string whole = ReadText(path);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{47}, size_t{500},
                            whole.size() / 4, whole.size() / 2, whole.size() - 1}) {
    WriteText(path, whole.substr(0, size));
    EXPECT_THAT([&] { ReadCheckpoint(path); }, ThrowsMessage<DataError>(HasSubstr(path))) << size;
  }
}

TEST_F(CheckpointTest, FlippedBitsAreDetectedOrHarmless) {
  const std::string path = Write(1);
  const Checkpoint want = ReadCheckpoint(path);
  const size_t size = ReadText(path).size();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto flip = [&file](size_t i) {
    const auto at = static_cast<std::streamoff>(i);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 0x10));
    file.flush();
  };
  size_t refused = 0;
  for (size_t i = 0; i < size; i += 23) {
    flip(i);
    try {
      ExpectSame(ReadCheckpoint(path), want);  // unused bytes, or bytes that only Keras reads
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
      ++refused;
    }
    flip(i);
  }
  EXPECT_GT(refused, size / 23 / 4);
}

TEST_F(CheckpointTest, ChangedWeightIsADigestMismatch) {
  const std::string path = Write(1);
  std::string bytes = ReadText(path);
  const float needle[] = {7.0f, 7.25f, 7.5f};  // net/fc/biases
  const size_t at = bytes.find({reinterpret_cast<const char*>(needle), sizeof(needle)});
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] ^= 1;
  WriteText(path, bytes);
  EXPECT_THAT([&] { ReadCheckpoint(path); },
              ThrowsMessage<DataError>(AllOf(HasSubstr(path), HasSubstr("digest mismatch: got "))));
}

TEST_F(CheckpointTest, RefusesOtherFiles) {
  const std::string path = PathOf(1);
  EXPECT_THAT([&] { ReadCheckpoint(path); },
              ThrowsMessage<DiskError>(AllOf(HasSubstr(path), HasSubstr("No such file"))));
  WriteText(path, std::string(5000, 'x'));
  EXPECT_THAT([&] { ReadCheckpoint(path); },
              ThrowsMessage<DataError>(HasSubstr("is not an HDF5 file (5000 bytes)")));
  EXPECT_THAT([&] { ReadCheckpoint(folder_.path()); },
              ThrowsMessage<DataError>(HasSubstr("is not a regular file")));
}

// In a small file, many variables could point to the same dataset.
TEST_F(CheckpointTest, RefusesVariablesThatShareTheirBytes) {
  const std::string path = PathOf(1);
  Hdf5File file = Hdf5File::Create(path);
  for (const char* group : {"/carole", "/carole/attributes", "/carole/variables", "/carole/slots"})
    file.CreateGroup(group);
  file.WriteFloats("/weights", {1000}, std::vector<float>(1000));
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(std::to_string(i));
  const std::pair<const char*, std::vector<std::string>> tables[] = {{"/carole/variables", names},
                                                                     {"/carole/slots", {}}};
  for (const auto& [group, list] : tables) {
    file.SetStringList(group, "names", list);
    file.SetStringList(group, "paths", std::vector<std::string>(list.size(), "/weights"));
    file.SetStringList(group, "trainable", std::vector<std::string>(list.size(), "1"));
  }
  for (const char* number : {"step", "epoch", "position"}) file.SetInt("/carole", number, 1);
  file.SetInt("/carole", "format_version", 1);
  file.SetUnsigned("/carole", "seed", 1);
  file.SetFixedString("/carole", "digest", std::string(16, '0'));
  file.Close();
  EXPECT_THAT([&] { ReadCheckpoint(path); },
              ThrowsMessage<DataError>(HasSubstr("need more bytes than the file has")));
}

TEST(CheckCompatible, NamesTheFirstDifferences) {
  const Checkpoint c = Example();
  std::vector<VariableSpec> specs;
  for (const CheckpointVariable& v : c.variables) specs.push_back({v.name, v.shape});
  EXPECT_NO_THROW(CheckCompatible(c, specs, "f.h5"));
  specs[5].shape = {4, 10};
  specs[6].name = "net/fc/other";
  EXPECT_THAT(
      [&] { CheckCompatible(c, specs, "f.h5"); },
      ThrowsMessage<DataError>(HasSubstr(
          "f.h5: is a checkpoint of another net: 3 variables differ: net/fc/weights has shape "
          "[4,3], want [4,10], net/fc/other is missing, net/fc/biases is unexpected; ")));
  for (VariableSpec& spec : specs) spec.name += "x";
  EXPECT_THAT([&] { CheckCompatible(c, specs, "f.h5"); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("14 variables differ"), HasSubstr(", …"))));
}

TEST_F(CheckpointTest, LatestIsTheNewestUndamagedOne) {
  EXPECT_FALSE(ReadLatest(folder_.path()));
  EXPECT_FALSE(ReadLatest(folder_.path() + "/absent"));
  for (const int64_t step : {9, 10, 200}) Write(step);
  WriteText(folder_.path() + "/model.ckpt-300.h5.tmp", "half");
  WriteText(folder_.path() + "/model.ckpt-x.h5", "");
  EXPECT_EQ(ReadLatest(folder_.path())->path, PathOf(200));  // numeric order, not alphabetic
  WriteText(PathOf(200), ReadText(PathOf(200)).substr(0, 3000));
  testing::internal::CaptureStderr();
  const auto latest = ReadLatest(folder_.path());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("skipping a checkpoint: " + PathOf(200)));
  EXPECT_EQ(latest->path, PathOf(10));
  EXPECT_EQ(latest->checkpoint.step, 10);
  // A file that cannot be read may be undamaged. So the run must not fall back to an older one.
  std::filesystem::create_symlink("nowhere", PathOf(300));
  EXPECT_THAT([&] { ReadLatest(folder_.path()); },
              ThrowsMessage<DiskError>(
                  HasSubstr("or move " + PathOf(300) + " away to continue from step 200")));
  std::filesystem::remove(PathOf(300));
  WriteText(PathOf(9), "");
  WriteText(PathOf(10), "");
  EXPECT_THAT([&] { ReadLatest(folder_.path()); },
              ThrowsMessage<DataError>(HasSubstr("all of its checkpoints (3) are damaged")));
}

TEST_F(CheckpointTest, WriterKeepsTheNewest) {
  WriteText(PathOf(1) + ".tmp", "left by a run that died");
  Write(5);
  {
    CheckpointWriter writer({.folder = folder_.path(), .keep = 2});
    EXPECT_FALSE(std::filesystem::exists(PathOf(1) + ".tmp"));
    EXPECT_THAT(Steps(), ElementsAre(5));
    for (const int64_t step : {10, 20, 30}) writer.Write(Example(step));
    writer.Wait();
    EXPECT_THAT(Steps(), ElementsAre(20, 30));
    writer.Write(Example(40));
  }
  EXPECT_THAT(Steps(), ElementsAre(30, 40));  // the destructor finished it
  ExpectSame(ReadCheckpoint(PathOf(40)).variables[0], Example().variables[0]);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasOtherHeap = true;
#elif defined(__has_feature)
constexpr bool kHasOtherHeap = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kHasOtherHeap = false;
#endif

size_t ResidentBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The heap does not shrink below blocks that were allocated after the snapshot.
TEST_F(CheckpointTest, WriterGivesTheMemoryOfASnapshotBack) {
  if (kHasOtherHeap) GTEST_SKIP() << "skipped: the heap of a sanitizer keeps freed memory";
  CheckpointWriter writer({.folder = folder_.path()});
  writer.Write(Example(1));
  writer.Wait();
  const size_t before = ResidentBytes();
  Checkpoint c = Example(2);
  for (int i = 0; i < 250; ++i)
    c.variables.push_back(Variable(fmt::format("net/fc{}/weights", i), {16'000}, 1));
  const std::vector<std::string> later(10, std::string(100'000, 'x'));
  EXPECT_GT(ResidentBytes(), before + (14 << 20)) << "the snapshot has 16 MB";
  writer.Write(std::move(c));
  writer.Wait();
  EXPECT_LT(ResidentBytes(), before + (8 << 20));
}

TEST_F(CheckpointTest, PruningKeepsTheCheckpointJustWritten) {
  // Step 90 is of a run that was restarted from an earlier step.
  for (const int64_t step : {10, 20, 90}) Write(step);
  PruneCheckpoints(folder_.path(), 20, 1);
  EXPECT_THAT(Steps(), ElementsAre(20, 90));
  PruneCheckpoints(folder_.path(), 90, 0);
  EXPECT_THAT(Steps(), ElementsAre(20, 90));
}

TEST_F(CheckpointTest, WriterReportsErrorsAndCanContinue) {
  const std::string sub = folder_.path() + "/sub";
  std::filesystem::create_directory(sub);
  CheckpointWriter writer({.folder = sub});
  std::filesystem::remove(sub);
  writer.Write(Example());
  EXPECT_THAT([&] { writer.Wait(); },
              ThrowsMessage<DiskError>(AllOf(HasSubstr(sub + "/model.ckpt-120.h5"),
                                             HasSubstr("make its folder first"))));
  EXPECT_FALSE(writer.HasFailed());
  writer.Write(Example());
  while (!writer.HasFailed()) std::this_thread::yield();
  EXPECT_THROW(writer.Write(Example()), DiskError);
  std::filesystem::create_directory(sub);
  writer.Write(Example());
  EXPECT_NO_THROW(writer.Wait());
  EXPECT_EQ(ReadLatest(sub)->path, CheckpointPath(sub, 120));
}

// Runs `work` in a child process; returns its wait status.
int InChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (...) {
      _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(CheckpointTest, FailedWriteLeavesTheOldFileAndNoTemporary) {
  Write(3);
  const std::string before = ReadText(PathOf(3));
  const int status = InChild([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    Checkpoint c = Example(3);
    try {
      WriteCheckpoint(c, CheckpointPath(folder_.path(), 3));
    } catch (const DiskError& error) {
      _exit(std::string(error.what()).find("File too large") != std::string::npos ? 42 : 3);
    }
  });
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(ReadText(PathOf(3)), before);
  EXPECT_FALSE(std::filesystem::exists(PathOf(3) + kTemporarySuffix));
}

TEST_F(CheckpointTest, KilledWriterLeavesOnlyCompleteCheckpoints) {
  Write(1);
  for (int try_number = 0; try_number < 5; ++try_number) {
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = 2;; ++step) {  // until it is killed
        Checkpoint c = Example(step);
        WriteCheckpoint(c, CheckpointPath(folder_.path(), step));
      }
    }
    while (try_number == 0 && Steps().back() < 2) usleep(1000);
    usleep(15'000 + 3'700 * try_number);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const CheckpointFile& file : ListCheckpoints(folder_.path())) {
      EXPECT_NO_THROW(ReadCheckpoint(file.path));
    }
  }
  EXPECT_GT(Steps().back(), 1);
  RemoveTemporaries(folder_.path());
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().extension(), ".h5");
  }
}

}  // namespace
}  // namespace carole::io
