// All-reduce for ranks that are threads with a walled backend each. It does what NCCL does for
// GPUs.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/device_all_reduce.h"
#include "collectives/full_communicator.h"
#include "src/core/float16.h"
#include "tests/support/walled_backend.h"

namespace carole::testing {

// The state that the ranks of a job share.
struct WalledRanks {
  explicit WalledRanks(int size)
      : parts(static_cast<size_t>(size)), double_parts(static_cast<size_t>(size)), barrier(size) {}
  std::vector<std::span<float>> parts;
  std::vector<std::span<double>> double_parts;
  std::barrier<> barrier;
};

class WalledAllReduce : public collectives::DeviceAllReduce {
 public:
  WalledAllReduce(std::shared_ptr<WalledRanks> ranks, int rank, WalledStream& stream)
      : ranks_(std::move(ranks)), rank_(static_cast<size_t>(rank)), stream_(stream) {}

  bool Holds(const void* memory) const override { return stream_.Holds(memory); }
  std::unique_ptr<collectives::CommArena> AllocateArena(size_t bytes) override {
    return std::make_unique<Arena>(stream_, bytes);
  }
  Ticket Mark(bool) override { return tickets_++; }
  void Enqueue(Ticket, std::span<float> data, DType wire) override {
    const auto round = [](float x) { return static_cast<float>(Bf16(x)); };
    wire == DType::kBF16 ? SumParts(ranks_->parts, data, round)
                         : SumParts(ranks_->parts, data, std::identity());
  }
  void Enqueue(Ticket, std::span<double> data) override {
    SumParts(ranks_->double_parts, data, std::identity());
  }
  void NoteReplay() override {}
  void Join(Ticket) override {}
  bool IsCaptured(Ticket) const override { return false; }
  std::string FindProblem(double) override { return ""; }

 private:
  class Arena : public collectives::CommArena {
   public:
    Arena(WalledStream& stream, size_t bytes)
        : stream_(stream), data_(stream.Allocate(bytes)), size_(bytes) {}
    ~Arena() override { stream_.Free(data_); }
    std::byte* data() const override { return data_; }
    size_t size() const override { return size_; }

   private:
    WalledStream& stream_;
    std::byte* const data_;
    const size_t size_;
  };

  // The device memory of all ranks stays accessible until each rank has its sum. `round` is applied
  // to all addends and sums.
  template <typename T, typename Round>
  void SumParts(std::vector<std::span<T>>& parts, std::span<T> data, Round round) {
    const auto sum_over_ranks = [this, &parts, data, round] {
      parts[rank_] = data;
      ranks_->barrier.arrive_and_wait();
      std::vector<T> sum(data.size());
      for (const std::span<T> part : parts) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] = round(sum[i] + round(part[i]));
      }
      ranks_->barrier.arrive_and_wait();
      std::ranges::copy(sum, data.begin());
      ranks_->barrier.arrive_and_wait();
    };
    stream_.is_capturing() ? stream_.Add(sum_over_ranks) : stream_.Open(sum_over_ranks);
  }

  const std::shared_ptr<WalledRanks> ranks_;
  const size_t rank_;
  WalledStream& stream_;
  Ticket tickets_ = 0;
};

// Returns a function for RankTraining::connect_devices that connects the devices of `size` ranks.
inline auto ConnectWalled(int size) {
  return [ranks = std::make_shared<WalledRanks>(size)](collectives::FullCommunicator& communicator,
                                                       const Backend& backend) {
    auto& stream = *static_cast<WalledStream*>(backend.gpu_stream()->stream);
    communicator.SetDeviceAllReduce(
        std::make_unique<WalledAllReduce>(ranks, communicator.rank(), stream));
  };
}

}  // namespace carole::testing
