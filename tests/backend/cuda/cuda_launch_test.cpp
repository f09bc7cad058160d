// Tests how our own kernels divide their work among blocks of threads, and that the emulated GPU
// detects faults that stop a real one.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/backend/cuda/kernels/bias.h"
#include "src/backend/cuda/kernels/channel_sums.h"
#include "src/backend/cuda/kernels/copy.h"
#include "src/core/error.h"

namespace carole::cuda {
namespace {

constexpr int64_t kMaxBlocksY = 65535;

TEST(MatrixPartition, CoversEverythingWithinTheLimitsOfGrids) {
  const int64_t all_pixels[] = {1, 7, 49 * 256, 512 * 112 * 112, 512LL * 448 * 448, UINT32_MAX};
  const int64_t all_columns[] = {1, 3, 8, 18, 33, 256, 1001, 512 * 2048, 1 << 24};
  for (const int64_t pixels : all_pixels) {
    for (const int64_t columns : all_columns) {
      for (const MatrixPartition& partition :
           {MatrixPartition(pixels, columns, kFullGrid), PartitionForSums(pixels, columns)}) {
        EXPECT_GE(int64_t{partition.pixel_blocks} * partition.chunk, pixels);
        EXPECT_LT((int64_t{partition.pixel_blocks} - 1) * partition.chunk, pixels)
            << "a block without pixels";
        EXPECT_GE(int64_t{partition.column_blocks} * partition.lanes, columns);
        EXPECT_LE(partition.lanes, kMaxLanes);
        EXPECT_LE(partition.pixel_blocks, kMaxBlocksY);
        EXPECT_LE(int64_t{partition.column_blocks} * partition.pixel_blocks,
                  2 * kFullGrid + partition.column_blocks);
      }
    }
  }
}

TEST(MatrixPartition, FewThreadsAreIdle) {
  for (const int64_t columns : {3, 12, 18, 20, 36, 40, 72, 120, 1001}) {
    const MatrixPartition partition(1 << 20, columns, kFullGrid);
    const int64_t busy = kThreads / partition.lanes * columns,
                  all = kThreads * partition.column_blocks;
    EXPECT_GT(busy, all * 85 / 100) << columns << " columns in lanes of " << partition.lanes;
  }
}

// There are enough rows that every thread reads ahead many times, and their number is odd. The
// values are integers, so their sums are exact.
TEST(ColumnSums, AreExactForManyRows) {
  constexpr int64_t kRows = 1024 * 256 * 37 + 77;
  std::vector<float> dy(kRows);
  int64_t sum = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t value = i * 7919 % 251 - 100;
    dy[i] = static_cast<float>(value);
    sum += value;
  }
  std::vector<std::byte> workspace(ColumnSumsBytes(DType::kF32, kRows, 1));
  float db = 0;
  ColumnSums(nullptr, DType::kF32, dy.data(), kRows, 1, &db, workspace.data());
  EXPECT_EQ(db, static_cast<float>(sum));
}

// There are more pixels than a full grid has threads, so that each thread reads several pixels
// before it writes.
TEST(ForMatrix, ReachesEveryPixelOnce) {
  constexpr int64_t kRows = 80'007, kColumns = 33;
  std::vector<float> y(kRows * kColumns), bias(kColumns);
  std::iota(bias.begin(), bias.end(), 1.0f);
  std::iota(y.begin(), y.end(), -1000.0f);
  const std::vector<float> residual(y.size(), -3);
  AddBiasRelu(nullptr, DType::kF32, y.data(), bias.data(), residual.data(), kRows, kColumns, true);
  int64_t wrong = 0;
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const int64_t want = std::max<int64_t>(0, i - 1000 + i % kColumns + 1 - 3);
    wrong += y[i] == static_cast<float>(want) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
}

// The gradient of a ReLU, which is 0 also where y is exactly 0, with and without its column sums.
TEST(MaskGradient, IsZeroWhereReluDidNotPass) {
  constexpr int64_t kRows = 59, kColumns = 17;
  std::vector<Fp16> dx, y;
  std::vector<float> want, sums(kColumns);
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    dx.emplace_back(static_cast<float>(i % 7 - 3));
    y.emplace_back(static_cast<float>(std::max<int64_t>(i % 5 - 2, 0)));
    want.push_back(i % 5 > 2 ? static_cast<float>(i % 7 - 3) : 0);
    sums[i % kColumns] += want.back();
  }
  const size_t workspace = ColumnSumsBytes(DType::kF16, kRows, kColumns);
  std::vector<double> parts(workspace / sizeof(double) + 1);
  std::vector<float> db(kColumns, -1);
  for (float* wanted : {static_cast<float*>(nullptr), db.data()}) {
    std::vector<Fp16> masked = dx;
    MaskGradient(nullptr, DType::kF16, masked.data(), y.data(), kRows, kColumns, wanted,
                 reinterpret_cast<std::byte*>(parts.data()));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(static_cast<float>(masked[i]), want[i]) << i;
  }
  EXPECT_EQ(db, sums);
}

TEST(ForEach, ReachesEveryElementOnce) {
  constexpr int64_t kCount = kFullGrid * kThreads * 5 + 77;
  std::vector<Bf16> from(kCount);
  for (int64_t i = 0; i < kCount; ++i) from[i] = Bf16(static_cast<float>(i % 251));
  std::vector<float> to(kCount, -1);
  CastFilter(nullptr, DType::kBF16, from.data(), {kCount, 1, 1, 1}, to.data(), {kCount, 1, 1, 1});
  int64_t wrong = 0;
  for (int64_t i = 0; i < kCount; ++i) wrong += to[i] == static_cast<float>(i % 251) ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

TEST(EmulatedGpu, RefusesGridsThatARealOneRefuses) {
  const auto kernel = +[](int) {};
  EXPECT_THROW(Launch(nullptr, dim3(0), kernel, 1), DeviceError);
  EXPECT_THROW(Launch(nullptr, dim3(1, kMaxBlocksY + 1), kernel, 1), DeviceError);
  EXPECT_NO_THROW(Launch(nullptr, dim3(2, 3), kernel, 1));
}

// Each thread reads what its neighbor has written.
__global__ void ReadNeighbor(int* to, bool waits) {
  __shared__ int left[kThreads];
  left[threadIdx.x] = 0;
  __syncthreads();
  left[threadIdx.x] = 1;
  if (waits) __syncthreads();
  to[threadIdx.x] = left[(threadIdx.x + 1) % kThreads];
}

TEST(EmulatedGpu, AMissingBarrierGivesOtherBits) {
  for (const bool waits : {true, false}) {
    std::vector<int> found;
    for (int run = 0; run < 2; ++run) {
      std::vector<int> to(kThreads);
      Launch(nullptr, dim3(1), ReadNeighbor, to.data(), waits);
      found.push_back(std::accumulate(to.begin(), to.end(), 0));
    }
    EXPECT_EQ(found[0] == kThreads && found[1] == kThreads, waits);
  }
}

__global__ void HalfReachesBarrier(int) {
  if (threadIdx.x < kThreads / 2) __syncthreads();
}

TEST(EmulatedGpuDeathTest, StopsAtABarrierThatSomeThreadsDoNotReach) {
  EXPECT_DEATH(Launch(nullptr, dim3(1), HalfReachesBarrier, 1), "a barrier that some threads");
}

TEST(EmulatedGpuDeathTest, StopsAtAMisalignedVector) {
#ifdef __clang__
  GTEST_SKIP() << "skipped: clang does not check the alignment of a struct that is copied";
#endif
  alignas(16) float y[8] = {};
  AddBiasRelu(nullptr, DType::kF32, y, nullptr, nullptr, 1, 4, true);
  EXPECT_DEATH(AddBiasRelu(nullptr, DType::kF32, y + 1, nullptr, nullptr, 1, 4, true),
               "misaligned");
}

}  // namespace
}  // namespace carole::cuda
