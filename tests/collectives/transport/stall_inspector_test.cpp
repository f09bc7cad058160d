// Chains of ranks that wait for each other.
#include "collectives/transport/stall_inspector.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace carole::collectives {
namespace {

// Messages of several ranks in one thread. A send is complete at once, as short messages of MPI
// are.
struct Mail {
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> sent;  // by sender and receiver
};

class MailTransport final : public Transport {
 public:
  MailTransport(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  Request StartSend(int peer, Channel, std::span<const std::byte> data) override {
    mail_.sent[{rank_, peer}].emplace_back(data.begin(), data.end());
    return 0;
  }
  Request StartReceive(int peer, Channel, std::span<std::byte> data) override {
    receives_[++last_] = {peer, data};
    return last_;
  }
  bool Test(Request request) override {
    if (request == 0) return true;
    const auto [peer, data] = receives_.at(request);
    auto& sent = mail_.sent[{peer, rank_}];
    if (sent.empty()) return false;
    std::memcpy(data.data(), sent.front().data(), data.size());
    sent.pop_front();
    receives_.erase(request);
    return true;
  }
  void Cancel(Request request) override { receives_.erase(request); }

 private:
  Mail& mail_;
  const int rank_;
  std::map<Request, std::pair<int, std::span<std::byte>>> receives_;
  Request last_ = 0;
};

// `waits[r]` is the rank that rank r waits for in operation `sequence`; -1 if r does not report.
class StallInspectorTest : public ::testing::Test {
 protected:
  void ReportWaits(const std::vector<int>& waits, uint64_t sequence = 7) {
    for (int round = 0; round < 2; ++round) {
      for (size_t r = 0; r < waits.size(); ++r) {
        if (inspectors_.size() <= r) {
          transports_.push_back(std::make_unique<MailTransport>(mail_, r));
          inspectors_.push_back(
              std::make_unique<StallInspector>(*transports_[r], r, waits.size(), 0));
        }
        if (waits[r] >= 0) inspectors_[r]->ReportWait(sequence, waits[r]);
      }
    }
  }
  Mail mail_;
  std::vector<std::unique_ptr<MailTransport>> transports_;
  std::vector<std::unique_ptr<StallInspector>> inspectors_;
};

TEST_F(StallInspectorTest, FindsTheRankThatDoesNotReport) {
  ReportWaits({3, -1, 1, 2});
  EXPECT_EQ(inspectors_[0]->FindStalledRank(7, 3), 1);
  EXPECT_EQ(inspectors_[2]->FindStalledRank(7, 1), 1);
  EXPECT_EQ(inspectors_[3]->FindStalledRank(7, 2), 1);
}

TEST_F(StallInspectorTest, NamesTheNeighborIfAllRanksReport) {
  ReportWaits({3, 0, 1, 2});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(inspectors_[rank]->FindStalledRank(7, (rank + 3) % 4), (rank + 3) % 4);
}

TEST_F(StallInspectorTest, ReportsAgainWhenItWaitsForAnotherRank) {
  ReportWaits({3, -1, 0, 2});
  EXPECT_EQ(inspectors_[3]->FindStalledRank(7, 2), 2);
  ReportWaits({1, -1, 0, 2});
  EXPECT_EQ(inspectors_[3]->FindStalledRank(7, 2), 1);
}

TEST_F(StallInspectorTest, IgnoresReportsOfEarlierOperations) {
  ReportWaits({3, 0, 1, 2}, 6);
  ReportWaits({3, -1, 1, 2}, 7);
  EXPECT_EQ(inspectors_[0]->FindStalledRank(7, 3), 1);
  EXPECT_EQ(inspectors_[0]->FindStalledRank(8, 3), 3);
}

}  // namespace
}  // namespace carole::collectives
