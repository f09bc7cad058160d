#include "launch/machine/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <future>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

class CpuQuotaTest : public ::testing::Test {
 protected:
  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_.path() / path).parent_path());
    std::ofstream(root_.path() / path) << text;
  }
  std::optional<double> Quota() const { return CpuQuota(root_.path()); }

 private:
  carole::TemporaryFolder root_;
};

TEST_F(CpuQuotaTest, IsUnlimitedWithoutFiles) { EXPECT_FALSE(Quota().has_value()); }

TEST_F(CpuQuotaTest, IsTheSmallestUpToTheTop) {
  Write("proc/self/cgroup", "0::/pod/container\n");
  Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_FALSE(Quota().has_value());
  Write("sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
  EXPECT_EQ(Quota(), 4);
  Write("sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 1.5);
}

// In a container, the path in /proc/self/cgroup is that on the host, but /sys/fs/cgroup shows the
// container's own group at its top.
TEST_F(CpuQuotaTest, IsReadAtTheTopOfAContainersMount) {
  Write("proc/self/cgroup", "0::/kubepods/pod17\n");
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(CpuQuotaTest, ReadsCgroupV1) {
  Write("proc/self/cgroup", "5:cpuset:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/x\n");
  Write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(Quota().has_value());
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 3);
}

TEST_F(CpuQuotaTest, IsUnlimitedIfFilesAreDamaged) {
  Write("proc/self/cgroup", "nonsense\n0::/\n4:cpu:/\n");
  Write("sys/fs/cgroup/cpu.max", "x y\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n");
  EXPECT_FALSE(Quota().has_value());
}

TEST(ThreadsPerProcess, SharesCoresAndQuota) {
  EXPECT_EQ(ThreadsPerProcess(16, 1, std::nullopt, 1), 16);
  EXPECT_EQ(ThreadsPerProcess(16, 4, std::nullopt, 4), 4);
  EXPECT_EQ(ThreadsPerProcess(16, 4, 8.0, 4), 2);
  EXPECT_EQ(ThreadsPerProcess(4, 1, 8.0, 4), 2);  // bound to different cores, one quota
  EXPECT_EQ(ThreadsPerProcess(64, 1, 1.5, 1), 1);
  EXPECT_EQ(ThreadsPerProcess(2, 3, 0.5, 3), 1);
}

TEST(ThreadsNextToGpu, LeavesSomeFreeForLaunchesAndNccl) {
  EXPECT_EQ(ThreadsNextToGpu(32, false), 31);
  EXPECT_EQ(ThreadsNextToGpu(32, true), 28);
  EXPECT_EQ(ThreadsNextToGpu(6, true), 3);  // half
  for (bool several_hosts : {false, true}) {
    EXPECT_EQ(ThreadsNextToGpu(2, several_hosts), 1);
    EXPECT_EQ(ThreadsNextToGpu(1, several_hosts), 1);
  }
}

TEST(BoundCores, FollowTheCpuAffinity) {
  const int before = FindBoundCores().count;
  EXPECT_GE(before, 1);
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  int cpu = 0;
  while (CPU_ISSET(cpu, &all) == 0) ++cpu;
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(FindBoundCores().count, 1);
  EXPECT_EQ(FindBoundCores().threads, 1);
  EXPECT_EQ(FindBoundCores().cpus, std::to_string(cpu));
  EXPECT_GE(CountCores(), before) << "binding does not change the machine";
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(FindBoundCores().count, before);
  EXPECT_EQ(FindBoundCores().threads, CPU_COUNT(&all));
}

// Binds the process to CPUs next to a device of a fake /sys, and gives it its CPUs back.
class BindNextToTest : public ::testing::Test {
 protected:
  BindNextToTest() { sched_getaffinity(0, sizeof all_, &all_); }
  ~BindNextToTest() override { sched_setaffinity(0, sizeof all_, &all_); }

  void WriteDevice(const std::string& bus_id, const std::string& cpus) const {
    const fs::path folder = root_.path() / fs::path("sys/bus/pci/devices") / bus_id;
    fs::create_directories(folder);
    std::ofstream(folder / "local_cpulist") << cpus << "\n";
  }
  std::string Bind(const std::string& bus_id) const { return BindNextTo(bus_id, root_.path()); }
  int FirstCpu() const {
    int cpu = 0;
    while (CPU_ISSET(cpu, &all_) == 0) ++cpu;
    return cpu;
  }

  cpu_set_t all_;
  carole::TemporaryFolder root_;
};

TEST_F(BindNextToTest, BindsAllThreadsOnce) {
  if (CPU_COUNT(&all_) < 2) GTEST_SKIP() << "skipped: there is only one CPU";
  const std::string first = std::to_string(FirstCpu());
  WriteDevice("0000:3b:00.0", first);
  WriteDevice("0000:af:00.0", std::to_string(FirstCpu() + 1));
  std::promise<void> end;
  cpu_set_t of_thread;
  std::thread thread([&, may_end = end.get_future()]() mutable {
    may_end.wait();
    sched_getaffinity(0, sizeof of_thread, &of_thread);
  });
  EXPECT_EQ(Bind("0000:3b:00.0"), first);
  EXPECT_EQ(FindBoundCores().cpus, first);
  EXPECT_EQ(Bind("0000:af:00.0"), "") << "the process is bound already";
  EXPECT_EQ(FindBoundCores().cpus, first);
  end.set_value();
  thread.join();
  EXPECT_EQ(CPU_COUNT(&of_thread), 1);
  EXPECT_TRUE(CPU_ISSET(FirstCpu(), &of_thread));
}

TEST_F(BindNextToTest, DoesNothingIfThereIsNoChoice) {
  WriteDevice("0000:01:00.0", FindBoundCores().cpus);  // one NUMA node
  WriteDevice("0000:02:00.0", "");
  WriteDevice("0000:03:00.0", "x-y");
  WriteDevice("0000:04:00.0", "8190-8191");  // CPUs that this process may not use
  for (const char* id : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "none"})
    EXPECT_EQ(Bind(id), "") << id;
  EXPECT_EQ(FindBoundCores().threads, CPU_COUNT(&all_));
}

}  // namespace
}  // namespace carole::launch
