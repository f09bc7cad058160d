#include "launch/machine/memory.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_.path() / path).parent_path());
    std::ofstream(root_.path() / path) << text;
  }
  int64_t Available() const { return AvailableMemory(root_.path()); }

 private:
  carole::TemporaryFolder root_;
};

TEST_F(AvailableMemoryTest, IsZeroWithoutFiles) { EXPECT_EQ(Available(), 0); }

TEST_F(AvailableMemoryTest, IsThatOfTheMachineWithoutCgroups) {
  Write("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:    5000 kB\n");
  EXPECT_EQ(Available(), 5000 * 1024);
}

TEST_F(AvailableMemoryTest, IsTheSmallestUpToTheTop) {
  Write("proc/meminfo", "MemAvailable: 5000 kB\n");
  Write("proc/self/cgroup", "0::/job/step\n");
  Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("sys/fs/cgroup/job/step/memory.current", "1000\n");
  EXPECT_EQ(Available(), 5000 * 1024);
  Write("sys/fs/cgroup/job/memory.max", "4000000\n");
  Write("sys/fs/cgroup/job/memory.current", "1500000\n");
  EXPECT_EQ(Available(), 2500000);
  Write("sys/fs/cgroup/job/memory.stat", "anon 1000000\ninactive_file 500000\n");
  EXPECT_EQ(Available(), 3000000);
  Write("sys/fs/cgroup/job/step/memory.max", "900\n");
  EXPECT_EQ(Available(), 0) << "used up";
}

TEST_F(AvailableMemoryTest, ReadsCgroupV1) {
  Write("proc/meminfo", "MemAvailable: 5000 kB\n");
  Write("proc/self/cgroup", "7:memory:/job\n4:cpu,cpuacct:/job\n");
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000000\n");
  Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000000\n");
  Write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 7\ntotal_inactive_file 200000\n");
  EXPECT_EQ(Available(), 2200000);
}

TEST_F(AvailableMemoryTest, IgnoresDamagedFiles) {
  Write("proc/meminfo", "MemAvailable: 5000 kB\n");
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "much\n");
  Write("sys/fs/cgroup/memory.current", "12\n");
  EXPECT_EQ(Available(), 5000 * 1024);
}

}  // namespace
}  // namespace carole::launch
