// Test cases for every communicator. tests/collectives runs them with threads, and tests/mpi with
// processes. A case throws std::runtime_error if a result is wrong.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/ranks/replica_check.h"
#include "collectives/reducer/reducer.h"

namespace carole::testing {

using collectives::Communicator;
using collectives::Range;

inline void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Returns counts around the number of ranks, one that ends within a vector, and one that takes many
// segments.
inline std::vector<size_t> CountsFor(int size) {
  const auto n = static_cast<size_t>(size);
  return {0, 1, n - 1, n, n + 1, 1000, size_t{1} << 20};
}

// Small integers: every order of addition gives the same sum, so the closed form is exact.
template <typename T>
T ValueOf(int rank, size_t i) {
  return static_cast<T>(static_cast<int>(i % 1009) - 500 + rank * 3);
}

// Requires that `data` holds the sum of ValueOf() over all ranks.
template <typename T>
void RequireSum(Communicator& c, std::span<const T> data) {
  const int p = c.size();
  for (size_t i = 0; i < data.size(); ++i) {
    const T want = static_cast<T>(p) * ValueOf<T>(0, i) + static_cast<T>(3 * p * (p - 1) / 2);
    if (data[i] == want) continue;
    throw std::runtime_error(fmt::format("element {} of {} on rank {} of {}: got {}, want {}", i,
                                         data.size(), c.rank(), p, data[i], want));
  }
}

template <typename T>
void CheckAllReduce(Communicator& c, std::span<T> data) {
  for (size_t i = 0; i < data.size(); ++i) data[i] = ValueOf<T>(c.rank(), i);
  c.AllReduce(data, {.what = "case"});
  RequireSum<T>(c, data);
}

// Checks that all ranks have the same bits, with values whose sum depends on the order of addition.
inline void CheckBitwiseEqual(Communicator& c, std::span<float> data) {
  std::mt19937 random(c.rank() + 1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& x : data) x = std::ldexp(uniform(random), static_cast<int>(random() % 20));
  c.AllReduce(data, {.what = "bits"});
  collectives::VerifyReplicas(c, data, "bits");
}

// Checks all counts, in memory of the caller and in an arena, also at an odd offset.
inline void CheckAllCounts(Communicator& c) {
  const size_t most = CountsFor(c.size()).back();
  const auto arena = c.AllocateArena((most + 16) * sizeof(double));
  for (size_t count : CountsFor(c.size())) {
    std::vector<float> floats(count);
    std::vector<double> doubles(count);
    CheckAllReduce<float>(c, floats);
    CheckAllReduce<double>(c, doubles);
    CheckBitwiseEqual(c, floats);
    for (size_t offset : {size_t{0}, size_t{3}}) {
      const std::span<float> range(reinterpret_cast<float*>(arena->data()) + offset, count);
      CheckAllReduce<float>(c, range);
      CheckBitwiseEqual(c, range);
    }
    CheckAllReduce<double>(c, {reinterpret_cast<double*>(arena->data()), count});
  }
}

// Checks a sum that may not be rounded, whatever type is used on the wire.
inline void CheckNotRounded(Communicator& c) {
  const auto value = [](int rank) { return 1 + static_cast<float>(rank) * 0x1p-12f; };
  float want = 0;
  for (int r = 0; r < c.size(); ++r) want += value(r);
  std::vector<float> data(1000, value(c.rank()));
  c.AllReduce(data, {.what = "exact"});
  for (float x : data) Require(x == want, "a sum that may not be rounded");
}

// Checks fp32 sums of a communicator that uses bf16 on the wire. Small integers are exact. Other
// values are rounded once as addend and once as sum, each time by at most 2^-9 of themselves.
inline void CheckBf16(Communicator& c) {
  constexpr double kRounding = 0x1p-8;
  CheckNotRounded(c);
  for (size_t count : {0, 1, c.size() - 1, c.size() + 1, 1000, 100'000}) {
    std::vector<float> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>((i + c.rank()) % 8);
    c.AllReduce(data, {.what = "small integers", .may_round = true});
    for (size_t i = 0; i < count; ++i) {
      float want = 0;
      for (int r = 0; r < c.size(); ++r) want += static_cast<float>((i + r) % 8);
      if (data[i] == want) continue;
      throw std::runtime_error(fmt::format("element {}: got {}, want {}", i, data[i], want));
    }
    std::vector<double> exact(count), sizes(count);
    std::mt19937 random(c.rank() + 1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < count; ++i) {
      data[i] = uniform(random);
      exact[i] = data[i];
      sizes[i] = std::abs(data[i]);
    }
    c.AllReduce(data, {.what = "random", .may_round = true});
    c.AllReduce(exact, {.what = "exact"});
    c.AllReduce(sizes, {.what = "sizes"});
    for (size_t i = 0; i < count; ++i) {
      const double bound = 2.02 * kRounding * sizes[i];
      if (std::abs(data[i] - exact[i]) <= bound) continue;
      throw std::runtime_error(
          fmt::format("element {}: got {}, want {} +- {}", i, data[i], exact[i], bound));
    }
    collectives::VerifyReplicas(c, data, "bits");
  }
}

// Checks many operations in flight at once, followed by a barrier.
inline void CheckInFlight(Communicator& c) {
  constexpr size_t kCount = 5000;
  std::vector<std::vector<float>> ranges(20, std::vector<float>(kCount));
  std::vector<std::unique_ptr<collectives::Pending>> pending;
  for (size_t k = 0; k < ranges.size(); ++k) {
    for (size_t i = 0; i < kCount; ++i) ranges[k][i] = ValueOf<float>(c.rank(), i);
    pending.push_back(
        c.AllReduceAsync(ranges[k], {.what = "flight", .bucket = static_cast<int>(k)}));
  }
  c.Barrier({.what = "after them"});
  for (const auto& p : pending) Require(p->Done(), "the barrier ended before an earlier operation");
  for (const auto& p : pending) p->Wait();
  for (const auto& range : ranges) RequireSum<float>(c, range);
}

// Checks pieces of several lengths, in memory of the caller and in an arena.
template <typename T>
void CheckReduceScatter(Communicator& c) {
  const auto n = static_cast<size_t>(c.size());
  const auto arena = c.AllocateArena(n * 50'000 * sizeof(T));
  for (size_t count : {0, 1, 1000, 50'000}) {
    std::vector<T> own(n * count);
    for (std::span<T> in : {std::span<T>(own), {reinterpret_cast<T*>(arena->data()), n * count}}) {
      for (size_t i = 0; i < in.size(); ++i) in[i] = ValueOf<T>(c.rank(), i);
      std::vector<T> out(count);
      c.ReduceScatter(in, out, {.what = "scatter"});
      std::vector<T> want(n * count);  // the pieces gathered again: the whole sum
      c.AllGather(std::as_bytes(std::span(out)), std::as_writable_bytes(std::span(want)),
                  {.what = "gather"});
      RequireSum<T>(c, want);
    }
  }
}

inline void CheckGatherAndBroadcast(Communicator& c) {
  CheckReduceScatter<float>(c);
  CheckReduceScatter<double>(c);
  for (size_t bytes : {0, 1, 1000, 600'000}) {
    std::vector<std::byte> mine(bytes, static_cast<std::byte>(c.rank() + 1));
    std::vector<std::byte> all(bytes * c.size());
    c.AllGather(mine, all, {.what = "gather"});
    for (int r = 0; r < c.size(); ++r) {
      const std::vector<std::byte> want(bytes, static_cast<std::byte>(r + 1));
      Require(std::equal(want.begin(), want.end(), all.begin() + r * bytes), "gathered bytes");
    }
    for (int root = 0; root < c.size(); ++root) {
      std::vector<std::byte> data(bytes, static_cast<std::byte>(c.rank() * 7 + root));
      c.Broadcast(data, root, {.what = "broadcast"});
      const std::vector<std::byte> want(bytes, static_cast<std::byte>(root * 8));
      Require(data == want, "broadcast bytes");
    }
    std::vector<std::byte> received(bytes);
    c.Shift(mine, received, {.what = "shift"});
    const int before = (c.rank() + c.size() - 1) % c.size();
    const std::vector<std::byte> want(bytes, static_cast<std::byte>(before + 1));
    Require(received == want, "shifted bytes");
  }
}

// Checks a reducer with parameters of many sizes, marked in a different order on each rank and in
// each step.
template <typename T>
void CheckReducer(Communicator& c) {
  std::vector<Range> parameters;
  size_t end = 0;
  for (size_t count : {10, 500, 3, 70'000, 1, 300'000, 16, 16, 100'000}) {
    parameters.push_back({.offset = end, .count = count});
    end += (count + 15) / 16 * 16;
  }
  const auto arena = c.AllocateArena(end * sizeof(T));
  const std::span<T> gradients(reinterpret_cast<T*>(arena->data()), end);
  collectives::BasicReducer<T> reducer(c, gradients, parameters,
                                       {.first_bucket_bytes = 4096, .bucket_bytes = 400'000});
  std::mt19937 random(c.rank());
  for (int step = 0; step < 5; ++step) {
    reducer.BeginStep(step);
    std::vector<int> order(parameters.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int p : order) {
      for (size_t i = 0; i < parameters[p].count; ++i) {
        gradients[parameters[p].offset + i] = ValueOf<T>(c.rank(), i);
      }
      reducer.MarkReady(p);
    }
    size_t covered = 0;
    while (const auto range = reducer.WaitNext()) {
      Require(range->offset >= covered, "buckets come in order");
      covered = range->offset + range->count;
    }
    Require(covered == parameters.back().offset + parameters.back().count, "all buckets came");
    for (const Range& p : parameters) RequireSum<T>(c, gradients.subspan(p.offset, p.count));
  }
}

}  // namespace carole::testing
