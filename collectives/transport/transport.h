// Messages between ranks. This is all that the algorithms need to send and receive, so the same
// loops run over threads (local/) and over MPI (mpi/).
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "collectives/transport/watchdog.h"

namespace carole::collectives {

// Separates messages with data, messages with operation headers, and reports of stalled ranks.
enum class Channel { kData, kHeader, kStallReport };

// Messages from one rank to another on one channel arrive in the order of their sends. Used by one
// thread at a time.
class Transport {
 public:
  using Request = size_t;
  virtual ~Transport() = default;

  // Start a message and return a handle for it. The memory must stay alive and untouched until
  // Test() returns true or Cancel() is called. The receiver must know the size. Throw CommError if
  // the network refuses.
  virtual Request StartSend(int peer, Channel channel, std::span<const std::byte> data) = 0;
  virtual Request StartReceive(int peer, Channel channel, std::span<std::byte> data) = 0;

  // Returns whether the message is complete. Once it has returned true, the request is invalid.
  // Receives from one peer on one channel must be tested in the order in which they were started.
  virtual bool Test(Request request) = 0;

  // Abandons a message: its memory is no longer accessed. Does not throw.
  virtual void Cancel(Request request) = 0;
};

// A message in flight to or from rank `peer`. Movable. Cancels the message if it is destroyed
// before the message is complete.
class Message {
 public:
  Message() = default;
  Message(Transport* transport, Transport::Request request, int peer)
      : transport_(transport), request_(request), peer_(peer) {}
  Message(Message&& other) noexcept { *this = std::move(other); }
  Message& operator=(Message&& other) noexcept {
    std::swap(transport_, other.transport_);
    std::swap(request_, other.request_);
    std::swap(peer_, other.peer_);
    return *this;
  }
  ~Message() {
    if (transport_ != nullptr) transport_->Cancel(request_);
  }

  int peer() const { return peer_; }
  bool is_open() const { return transport_ != nullptr; }  // in flight

  // Returns whether the message is complete, or there is none.
  bool Done();

  // Blocks until the message is complete; returns at once if there is none. Throws CommError if
  // `watchdog` does.
  void Wait(Watchdog& watchdog);

  // Blocks until all messages are complete. Meanwhile the peers of incomplete messages are the
  // missing ranks of `watchdog`.
  static void WaitAll(std::span<Message> messages, Watchdog& watchdog);

 private:
  Transport* transport_ = nullptr;
  Transport::Request request_ = 0;
  int peer_ = 0;
};

inline Message Send(Transport& transport, int peer, Channel channel,
                    std::span<const std::byte> data) {
  return {&transport, transport.StartSend(peer, channel, data), peer};
}
inline Message Receive(Transport& transport, int peer, Channel channel, std::span<std::byte> data) {
  return {&transport, transport.StartReceive(peer, channel, data), peer};
}

}  // namespace carole::collectives
