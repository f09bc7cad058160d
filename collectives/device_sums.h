// Sums of memory that lies on a device (GPUs). The engine keeps the order, the contract and the
// deadlines of operations; this only moves the data, in the order of a stream, so that the host
// waits for nothing.
//
//   computing thread:  Ticket t = sums.Mark();   // the data is final when the stream comes here
//   engine's thread:   sums.Sum(t, data);        // once all ranks have agreed; enqueues
//   computing thread:  sums.Join(t);             // what the stream does next sees the sum
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace carole::collectives {

class DeviceSums {
 public:
  using Ticket = uint64_t;
  virtual ~DeviceSums() = default;

  // Whether the memory is the device's, so that these sums are for it and no others are.
  virtual bool Holds(const void* memory) const = 0;

  // Each ticket goes through the three calls once, in this order; tickets in the order of Mark().
  virtual Ticket Mark() = 0;
  virtual void Sum(Ticket ticket, std::span<float> data) = 0;
  virtual void Sum(Ticket ticket, std::span<double> data) = 0;
  virtual void Join(Ticket ticket) = 0;

  // Whether the stream recorded at Mark(), so that Sum() adds to the recording.
  virtual bool IsRecorded(Ticket ticket) const = 0;

  // Sums that the stream recorded, instead of running them, have been enqueued again: they must end
  // like others. Tickets may be marked while it records; they are gone afterwards.
  virtual void NoteReplay() = 0;

  // Why sums will not end: an error of the library, or one under way for longer than the deadline;
  // "" while all is well. From any thread.
  virtual std::string Trouble(double deadline_seconds) = 0;
};

}  // namespace carole::collectives
