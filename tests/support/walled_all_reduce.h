// All-reduce for ranks that are threads with a walled backend each. It does what NCCL does for
// GPUs.
#pragma once

#include <barrier>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/device_all_reduce.h"
#include "collectives/full_communicator.h"
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
  Ticket Mark() override { return tickets_++; }
  void Enqueue(Ticket, std::span<float> data) override { SumParts(ranks_->parts, data); }
  void Enqueue(Ticket, std::span<double> data) override { SumParts(ranks_->double_parts, data); }
  void NoteReplay() override {}
  void Join(Ticket) override {}
  bool IsCaptured(Ticket) const override { return false; }
  std::string FindProblem(double) override { return ""; }

 private:
  // The device memory of all ranks stays accessible until each rank has its sum.
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
