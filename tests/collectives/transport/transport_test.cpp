// Messages of ranks that leave as soon as they have sent them.
#include "collectives/transport/transport.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "src/core/error.h"

namespace carole::collectives {
namespace {

// Delivers messages in order: each Test() of the oldest undelivered message delivers it, if it has
// arrived.
class CountedMail final : public Transport {
 public:
  Request StartSend(int, Channel, std::span<const std::byte>) override { return next_++; }
  Request StartReceive(int, Channel, std::span<std::byte>) override { return next_++; }
  bool Test(Request request) override {
    if (request != delivered_ || delivered_ == arrived_) return false;
    ++delivered_;
    return true;
  }
  void Cancel(Request) override {}

  void Arrive(size_t messages) { arrived_ += messages; }

 private:
  Request next_ = 0, delivered_ = 0, arrived_ = 0;
};

// Waits for two messages of rank 1. `messages` of them arrive before the watchdog sees that the
// rank has left.
void AwaitTwoFromRankThatLeavesAfter(size_t messages) {
  CountedMail mail;
  std::array<std::byte, 1> byte{};
  std::array<Message, 2> awaited = {Receive(mail, 1, Channel::kData, byte),
                                    Receive(mail, 1, Channel::kData, byte)};
  std::swap(awaited[0], awaited[1]);  // the second is tested first, so one pass is not enough
  const std::vector<std::string> names = {"rank 0", "rank 1"};
  Watchdog watchdog({}, names, {.departure_reason = [&](int) {
                      mail.Arrive(messages);
                      return "it has left the job";
                    }});
  watchdog.Begin({});
  Message::WaitAll(awaited, watchdog);
}

TEST(Transport, ARankMayLeaveOnceItHasSent) { EXPECT_NO_THROW(AwaitTwoFromRankThatLeavesAfter(2)); }

TEST(Transport, ARankThatLeavesBetweenMessagesIsGone) {
  EXPECT_THROW(AwaitTwoFromRankThatLeavesAfter(1), CommError);
  EXPECT_THROW(AwaitTwoFromRankThatLeavesAfter(0), CommError);
}

}  // namespace
}  // namespace carole::collectives
