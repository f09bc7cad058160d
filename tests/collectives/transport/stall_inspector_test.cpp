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

// Messages of several ranks in one thread; a send is through at once, as MPI's short ones are.
struct Mail {
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> letters;  // from, to
};

class MailTransport final : public Transport {
 public:
  MailTransport(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  Request StartSend(int peer, Channel, std::span<const std::byte> data) override {
    mail_.letters[{rank_, peer}].emplace_back(data.begin(), data.end());
    return 0;
  }
  Request StartReceive(int peer, Channel, std::span<std::byte> data) override {
    receives_[++last_] = {peer, data};
    return last_;
  }
  bool Test(Request request) override {
    if (request == 0) return true;
    const auto [peer, data] = receives_.at(request);
    auto& letters = mail_.letters[{peer, rank_}];
    if (letters.empty()) return false;
    std::memcpy(data.data(), letters.front().data(), data.size());
    letters.pop_front();
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

// `waits[r]`: for whom rank r waits in operation 7, -1 if it does not take part.
class RollCallTest : public ::testing::Test {
 protected:
  void Call(const std::vector<int>& waits, uint64_t sequence = 7) {
    for (int round = 0; round < 2; ++round) {
      for (size_t r = 0; r < waits.size(); ++r) {
        if (calls_.size() <= r) {
          transports_.push_back(std::make_unique<MailTransport>(mail_, r));
          calls_.push_back(std::make_unique<StallInspector>(*transports_[r], r, waits.size(), 0));
        }
        if (waits[r] >= 0) calls_[r]->Call(sequence, waits[r]);
      }
    }
  }
  Mail mail_;
  std::vector<std::unique_ptr<MailTransport>> transports_;
  std::vector<std::unique_ptr<StallInspector>> calls_;
};

TEST_F(RollCallTest, BlamesTheRankThatDoesNotAnswer) {
  Call({3, -1, 1, 2});
  EXPECT_EQ(calls_[0]->Blame(7, 3), 1);
  EXPECT_EQ(calls_[2]->Blame(7, 1), 1);
  EXPECT_EQ(calls_[3]->Blame(7, 2), 1);
}

TEST_F(RollCallTest, BlamesTheNeighborWhenAllAnswer) {
  Call({3, 0, 1, 2});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(calls_[rank]->Blame(7, (rank + 3) % 4), (rank + 3) % 4);
}

TEST_F(RollCallTest, TellsWhenItWaitsForAnother) {
  Call({3, -1, 0, 2});
  EXPECT_EQ(calls_[3]->Blame(7, 2), 2);
  Call({1, -1, 0, 2});
  EXPECT_EQ(calls_[3]->Blame(7, 2), 1);
}

TEST_F(RollCallTest, AnswersOfEarlierOperationsDoNotCount) {
  Call({3, 0, 1, 2}, 6);
  Call({3, -1, 1, 2}, 7);
  EXPECT_EQ(calls_[0]->Blame(7, 3), 1);
  EXPECT_EQ(calls_[0]->Blame(8, 3), 3);
}

}  // namespace
}  // namespace carole::collectives
