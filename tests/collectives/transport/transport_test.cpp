// Messages of ranks that leave as soon as they have sent them.
#include "collectives/transport/transport.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "src/core/error.h"

namespace carole::collectives {
namespace {

// Takes one message, the oldest, at each look at that one, as long as any have come.
class Mail final : public Transport {
 public:
  Request StartSend(int, Channel, std::span<const std::byte>) override { return next_++; }
  Request StartReceive(int, Channel, std::span<std::byte>) override { return next_++; }
  bool Test(Request request) override {
    if (request != taken_ || taken_ == come_) return false;
    ++taken_;
    return true;
  }
  void Cancel(Request) override {}

  void Come(size_t messages) { come_ += messages; }

 private:
  Request next_ = 0, taken_ = 0, come_ = 0;
};

// Waits for two messages of rank 1, of which so many come before it is seen that it has left.
void AwaitTwoFromRankThatLeavesAfter(size_t messages) {
  Mail mail;
  std::array<std::byte, 1> byte{};
  std::array<Message, 2> awaited = {Receive(mail, 1, Channel::kData, byte),
                                    Receive(mail, 1, Channel::kData, byte)};
  std::swap(awaited[0], awaited[1]);  // the second is looked for first, so one look is not enough
  const std::vector<std::string> names = {"rank 0", "rank 1"};
  Watch watch({}, names, {.why_gone = [&](int) {
                mail.Come(messages);
                return "it has left the job";
              }});
  watch.Begin({});
  Message::WaitAll(awaited, watch);
}

TEST(Transport, ARankMayLeaveOnceItHasSent) { EXPECT_NO_THROW(AwaitTwoFromRankThatLeavesAfter(2)); }

TEST(Transport, ARankThatLeavesBetweenMessagesIsGone) {
  EXPECT_THROW(AwaitTwoFromRankThatLeavesAfter(1), CommError);
  EXPECT_THROW(AwaitTwoFromRankThatLeavesAfter(0), CommError);
}

}  // namespace
}  // namespace carole::collectives
