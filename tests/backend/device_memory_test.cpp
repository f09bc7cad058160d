// Tests memory, copies and arithmetic of the host and of an emulated GPU, whose memory the host
// cannot access. All devices must pass the same cases.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/backend/arena_math.h"
#include "src/backend/host_view.h"
#include "src/backend/update_rules.h"
#include "src/tensor/buffer.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/walled_backend.h"

namespace carole {
namespace {

struct Device {
  std::string name;
  std::unique_ptr<Backend> (*make)();
};

class DeviceTest : public ::testing::TestWithParam<Device> {
 protected:
  // Device memory with these values.
  template <typename T>
  DeviceMemory Upload(const std::vector<T>& values) const {
    DeviceMemory memory = backend->Allocate(values.size() * sizeof(T));
    backend->CopyFromHost(memory.get(), reinterpret_cast<const std::byte*>(values.data()),
                          values.size() * sizeof(T));
    return memory;
  }
  template <typename T>
  std::vector<T> Read(const DeviceMemory& memory, size_t count) const {
    std::vector<T> values(count);
    backend->CopyToHost(reinterpret_cast<std::byte*>(values.data()), memory.get(),
                        count * sizeof(T));
    return values;
  }
  const ArenaMath& math() const { return backend->arena_math(); }

  const std::unique_ptr<Backend> backend = GetParam().make();
};

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest,
                         ::testing::Values(Device{"host", [] { return MakeReferenceBackend(3); }},
                                           Device{"gpu",
                                                  []() -> std::unique_ptr<Backend> {
                                                    return std::make_unique<testing::WalledBackend>(
                                                        testing::MakeEmulatedCudaBackend(1));
                                                  }}),
                         [](const auto& device) { return device.param.name; });

// Long enough for several threads, and no multiple of a block.
constexpr size_t kCount = 70003;

template <typename T>
std::vector<T> Values(T first) {
  std::vector<T> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = first / static_cast<T>(1 + i % 1009);
  return values;
}

bool* AsFlag(const DeviceMemory& memory) { return reinterpret_cast<bool*>(memory.get()); }

TEST_P(DeviceTest, MemoryIsZeroedAndAligned) {
  const DeviceMemory memory = backend->Allocate(kCount);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % Buffer::kAlignment, 0U);
  EXPECT_EQ(Read<char>(memory, kCount), std::vector<char>(kCount));
}

TEST_P(DeviceTest, CopiesAndSwaps) {
  const std::vector<float> a = Values(1.F), b = Values(-3.F);
  const DeviceMemory x = Upload(a), y = Upload(b);
  math().Swap(x.get(), y.get(), kCount * sizeof(float));
  EXPECT_EQ(Read<float>(x, kCount), b);
  EXPECT_EQ(Read<float>(y, kCount), a);
  backend->Copy(x.get(), y.get(), kCount * sizeof(float));
  EXPECT_EQ(Read<float>(x, kCount), a);
}

TEST_P(DeviceTest, CopiesUnlessTheFlagIsSet) {
  const std::vector<float> a = Values(1.F), b = Values(-3.F);
  for (const bool is_set : {true, false}) {
    const DeviceMemory to = Upload(a), from = Upload(b);
    const DeviceMemory flag = Upload(std::vector<char>{static_cast<char>(is_set)});
    math().CopyUnless(AsFlag(flag), to.get(), from.get(), kCount * sizeof(float));
    EXPECT_EQ(Read<float>(to, kCount), is_set ? a : b);
  }
}

// GPUs compute arenas in fp32 only.
TEST_P(DeviceTest, AddsScalesAndAveragesValues) {
  const auto check = [&]<typename T>(DType dtype, T factor) {
    const std::vector<T> a = Values(T(1)), b = Values(T(-3));
    const DeviceMemory from = Upload(b);
    std::vector<T> want = a;
    for (size_t i = 0; i < kCount; ++i) want[i] += b[i];
    DeviceMemory to = Upload(a);
    math().Add(dtype, to.get(), from.get(), kCount);
    EXPECT_EQ(Read<T>(to, kCount), want);

    for (T& value : want) value *= factor;
    math().Scale(dtype, to.get(), kCount, factor);
    EXPECT_EQ(Read<T>(to, kCount), want);

    for (const bool is_set : {false, true}) {
      const DeviceMemory flag = Upload(std::vector<char>{static_cast<char>(is_set)});
      for (size_t i = 0; is_set && i < kCount; ++i)
        want[i] = update_rules::MovingAverage(want[i], b[i], factor);
      math().UpdateAverage(AsFlag(flag), dtype, to.get(), from.get(), kCount, factor);
      EXPECT_EQ(Read<T>(to, kCount), want);
    }
  };
  check(DType::kF32, 0.1F);
  if (!backend->has_own_memory()) check(DType::kF64, 0.1);
}

TEST_P(DeviceTest, HashesDependOnBitsAndIndices) {
  std::vector<float> values = Values(1.F);
  const std::vector<Segment> ranges = {{0, 1}, {16, 64}, {64, 9000}, {7, 7}};
  const auto hashes = [&] {
    const DeviceMemory arena = Upload(values);
    return math().Hashes(reinterpret_cast<const float*>(arena.get()), ranges);
  };
  std::vector<uint64_t> want(ranges.size());
  for (size_t r = 0; r < ranges.size(); ++r) {
    for (int64_t i = ranges[r].begin; i < ranges[r].end; ++i)
      want[r] += HashOfValue(std::bit_cast<uint32_t>(values[i]), i - ranges[r].begin);
  }
  EXPECT_EQ(hashes(), want);
  std::swap(values[70], values[71]);
  EXPECT_NE(hashes()[2], want[2]);
  EXPECT_THAT(hashes(), ::testing::ElementsAre(want[0], want[1], ::testing::_, 0));
}

TEST_P(DeviceTest, HostViewReadsAndWrites) {
  const DeviceMemory memory = Upload(Values(1.F));
  {
    const HostView view(*backend, memory.get(), kCount * sizeof(float));
    for (float& value : view.as<float>()) value *= 2;
    view.Store();
  }
  EXPECT_EQ(Read<float>(memory, kCount), Values(2.F));
}

// Later work overwrites the memory before the host waits for the download.
TEST_P(DeviceTest, DownloadsKeepWhatWasThere) {
  const DeviceMemory memory = Upload(Values(1.F));
  const auto download = backend->MakeDownload(kCount * sizeof(float));
  for (const float first : {1.F, 2.F}) {
    download->Begin(memory.get());
    math().Scale(DType::kF32, memory.get(), kCount, 2);
    const auto* values = reinterpret_cast<const float*>(download->Wait());
    EXPECT_EQ(std::vector<float>(values, values + kCount), Values(first));
  }
}

// Each run reads the input that the host wrote for it, also if the device is several runs behind.
TEST_P(DeviceTest, RunsReadTheirOwnInputs) {
  constexpr int kRuns = 5;
  const DeviceMemory a = backend->Allocate(sizeof(float)), b = backend->Allocate(sizeof(float));
  const DeviceMemory sums = Upload(std::vector<float>{0, 0});
  {
    const auto inputs =
        backend->MakeInputBuffers({{a.get(), sizeof(float)}, {b.get(), sizeof(float)}});
    for (int run = 0; run < kRuns; ++run) {
      for (size_t i = 0; i < 2; ++i) {
        const float value = static_cast<float>(run) + 10 * static_cast<float>(i);
        std::memcpy(inputs->HostMemory(i), &value, sizeof value);
      }
      inputs->Upload();
      math().Scale(DType::kF32, sums.get(), 2, 3);  // the order of the runs matters
      math().Add(DType::kF32, sums.get(), a.get(), 1);
      math().Add(DType::kF32, sums.get() + sizeof(float), b.get(), 1);
    }
    backend->Synchronize();
  }
  float want_a = 0, want_b = 0;
  for (int run = 0; run < kRuns; ++run) {
    want_a = 3 * want_a + static_cast<float>(run);
    want_b = 3 * want_b + static_cast<float>(run) + 10;
  }
  EXPECT_EQ(Read<float>(sums, 2), (std::vector<float>{want_a, want_b}));
}

}  // namespace
}  // namespace carole
