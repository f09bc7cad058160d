// Sums over ranks that are threads, each with a walled backend: what NCCL is to GPUs.
#pragma once

#include <barrier>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/device_sums.h"
#include "tests/support/walled_backend.h"

namespace carole::testing {

// What the ranks share.
struct WalledRanks {
  explicit WalledRanks(int size)
      : parts(static_cast<size_t>(size)), double_parts(static_cast<size_t>(size)), barrier(size) {}
  std::vector<std::span<float>> parts;
  std::vector<std::span<double>> double_parts;
  std::barrier<> barrier;
};

class WalledSums : public collectives::DeviceSums {
 public:
  WalledSums(std::shared_ptr<WalledRanks> ranks, int rank, WalledStream& stream)
      : ranks_(std::move(ranks)), rank_(static_cast<size_t>(rank)), stream_(stream) {}

  bool Holds(const void* memory) const override { return stream_.Holds(memory); }
  Ticket Mark() override { return tickets_++; }
  void Sum(Ticket, std::span<float> data) override { SumParts(ranks_->parts, data); }
  void Sum(Ticket, std::span<double> data) override { SumParts(ranks_->double_parts, data); }
  void NoteReplay() override {}
  void Join(Ticket) override {}
  bool IsRecorded(Ticket) const override { return false; }
  std::string Trouble(double) override { return ""; }

 private:
  // The walls of all ranks are open until each has its sum.
  template <typename T>
  void SumParts(std::vector<std::span<T>>& parts, std::span<T> data) {
    const auto sum_over_ranks = [this, &parts, data] {
      parts[rank_] = data;
      ranks_->barrier.arrive_and_wait();
      std::vector<T> sum(data.size());
      for (const std::span<T> part : parts) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      ranks_->barrier.arrive_and_wait();
      std::ranges::copy(sum, data.begin());
      ranks_->barrier.arrive_and_wait();
    };
    stream_.is_recording() ? stream_.Add(sum_over_ranks) : stream_.Open(sum_over_ranks);
  }

  const std::shared_ptr<WalledRanks> ranks_;
  const size_t rank_;
  WalledStream& stream_;
  Ticket tickets_ = 0;
};

// For RankTraining::connect_devices.
inline auto ConnectWalled(int size) {
  return [ranks = std::make_shared<WalledRanks>(size)](collectives::Communicator& communicator,
                                                       const Backend& backend) {
    auto& stream = *static_cast<WalledStream*>(backend.arena_math()->stream());
    communicator.SetDeviceSums(std::make_unique<WalledSums>(ranks, communicator.rank(), stream));
  };
}

}  // namespace carole::testing
