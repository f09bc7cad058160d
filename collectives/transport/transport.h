// Messages between ranks: the little that algorithms need from a backend, so that the same loops
// run over threads and over MPI.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "collectives/transport/deadline.h"

namespace carole::collectives {

// Keeps the contract's messages apart from data, and those of ranks that look for a missing one.
enum class Channel { kData, kContract, kRollCall };

// Messages from one rank to another on one channel arrive in order. Used by one thread at a time.
class Transport {
 public:
  using Request = size_t;
  virtual ~Transport() = default;

  // Start a message; the memory stays alive and untouched until Test() or Cancel(). The receiver
  // knows the size. Throw CommError when the network refuses.
  virtual Request StartSend(int peer, Channel channel, std::span<const std::byte> data) = 0;
  virtual Request StartReceive(int peer, Channel channel, std::span<std::byte> data) = 0;

  // True, once, when the message is through: the request ends. Receives from one peer on one
  // channel are tested in the order in which they were started.
  virtual bool Test(Request request) = 0;

  // Gives a message up: its memory is not touched any more. Does not throw.
  virtual void Cancel(Request request) = 0;
};

// A message in flight to or from `peer`; given up if destroyed before Wait().
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
  bool is_open() const { return transport_ != nullptr; }

  // Whether the message is through, or there is none.
  bool Done();

  // Returns when the message is through; at once if there is none. Throws what `watch` throws.
  void Wait(Watch& watch);

  // Returns when all are through; while waiting, the peers of those that are not count as missing.
  static void WaitAll(std::span<Message> messages, Watch& watch);

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
