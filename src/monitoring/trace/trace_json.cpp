#include "src/monitoring/trace/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/communicator.h"

namespace carole::monitoring {
namespace {

enum Track { kSteps = 1, kCollectives = 2, kDevice = 3 };  // streams of a device follow kDevice

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double Seconds(TraceEvent::Time::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Returns `"ts":...,"dur":...` in microseconds. Start and end are rounded, not the duration, so
// that nested events stay nested.
std::string Span(TraceEvent::Time start, TraceEvent::Time end, TraceEvent::Time zero,
                 double offset) {
  const auto nanoseconds = [&](TraceEvent::Time time) {
    return std::llround((Seconds(time - zero) + offset) * 1e9);
  };
  const int64_t from = nanoseconds(start), length = std::max<int64_t>(0, nanoseconds(end) - from);
  return fmt::format(R"("ts":{:.3f},"dur":{:.3f})", static_cast<double>(from) * 1e-3,
                     static_cast<double>(length) * 1e-3);
}

// Buckets are numbered. Other collectives have the name of their purpose, or of their operation.
std::string NameOf(const TraceEvents& all, const TraceEvent& event) {
  const std::string& name = all.names[event.name];
  if (name == "gradients") return fmt::format("{} {}", name, event.bucket);
  return name.empty() ? all.names[event.detail] : name;
}

std::string Complete(const TraceRank& rank, int track, std::string_view name,
                     std::string_view category, const std::string& span, const std::string& args) {
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}",{},"args":{{{}}}}})",
                     rank.rank, track, Quoted(name), category, span, args);
}

}  // namespace

double BusBandwidth(collectives::Operation operation, uint64_t bytes, double seconds, int size) {
  if (seconds <= 0) return 0;
  const bool is_all_reduce = operation == collectives::Operation::kAllReduce;
  const double share = is_all_reduce ? collectives::AllReduceBusFactor(size) : 1;
  return share * static_cast<double>(bytes) / seconds;
}

void TraceJson::Add(const std::string& event) {
  out_ << (is_first_ ? "\n" : ",\n") << event;
  is_first_ = false;
}

void TraceJson::AddNames(const TraceRank& rank, int num_streams) {
  const auto name = [&](const char* what, int track, const std::string& args) {
    Add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", rank.rank, track,
                    what, args));
  };
  name("process_name", 0, R"("name":)" + Quoted(rank.name));
  name("process_sort_index", 0, fmt::format(R"("sort_index":{})", rank.rank));
  name("thread_name", kSteps, R"("name":"steps")");
  name("thread_sort_index", kSteps, R"("sort_index":1)");
  name("thread_name", kCollectives, R"("name":"collectives")");
  name("thread_sort_index", kCollectives, R"("sort_index":2)");
  for (int stream = 0; stream < num_streams; ++stream) {
    const std::string what = stream == 0 ? "device" : fmt::format("device reductions {}", stream);
    name("thread_name", kDevice + stream, R"("name":)" + Quoted(what));
    name("thread_sort_index", kDevice + stream,
         fmt::format(R"("sort_index":{})", kDevice + stream));
  }
}

// The bandwidth is that of the reduction itself, without waiting for ranks, if all ranks come to it
// at the same time.
void TraceJson::AddDevice(const TraceRank& rank, const TraceEvents& all, const TraceEvent& event) {
  const double bandwidth = BusBandwidth(collectives::Operation::kAllReduce, event.bytes,
                                        Seconds(event.end - event.start), rank.size);
  const std::string reduction =
      event.stream == 0 ? ""
                        : fmt::format(R"(,"bytes":{},"bucket":{},"bus_GB_per_s":{:.3f})",
                                      event.bytes, event.bucket, bandwidth * 1e-9);
  Add(Complete(rank, kDevice + event.stream, NameOf(all, event), "device",
               Span(event.start, event.end, zero_, rank.clock_offset),
               fmt::format(R"("step":{}{})", event.step, reduction)));
}

void TraceJson::AddCollective(const TraceRank& rank, const TraceEvents& all,
                              const TraceEvent& event) {
  const std::string& operation = all.names[event.detail];
  const double bandwidth =
      BusBandwidth(event.operation, event.bytes, Seconds(event.end - event.all_arrived), rank.size);
  const double offset = rank.clock_offset;
  Add(Complete(
      rank, kCollectives, NameOf(all, event), "collective",
      Span(event.start, event.end, zero_, offset),
      fmt::format(
          R"("operation":"{}","algorithm":"{}","bytes":{},"bucket":{},"step":{},"sequence":{},)"
          R"("waited_ms":{:.3f},"bus_GB_per_s":{:.3f})",
          operation, all.names[event.algorithm], event.bytes, event.bucket, event.step,
          event.sequence, Seconds(event.all_arrived - event.start) * 1e3, bandwidth * 1e-9)));
  Add(Complete(rank, kCollectives, "wait for ranks", "wait",
               Span(event.start, event.all_arrived, zero_, offset), ""));
}

void TraceJson::AddRank(const TraceRank& rank, const TraceEvents& all) {
  int num_streams = 0;
  for (const TraceEvent& event : all.events) {
    if (event.kind == TraceKind::kDevice) num_streams = std::max(num_streams, event.stream + 1);
  }
  AddNames(rank, num_streams);
  for (const TraceEvent& event : all.events) {
    const std::string span = Span(event.start, event.end, zero_, rank.clock_offset);
    const std::string step = fmt::format(R"("step":{})", event.step);
    const std::string& name = all.names[event.name];
    switch (event.kind) {
      case TraceKind::kStep:
        Add(Complete(rank, kSteps, fmt::format("step {}", event.step), "step", span, step));
        break;
      case TraceKind::kPhase:
        Add(Complete(rank, kSteps, name, "phase", span, step));
        break;
      case TraceKind::kKernel:
        Add(Complete(rank, kSteps, name.empty() ? all.names[event.detail] : name, "kernel", span,
                     fmt::format(R"("op":"{}")", all.names[event.detail])));
        break;
      case TraceKind::kCollective:
        AddCollective(rank, all, event);
        break;
      case TraceKind::kDevice:
        AddDevice(rank, all, event);
        break;
      case TraceKind::kInput:
        Add(fmt::format(R"({{"ph":"C","pid":{},"name":"input threads, ms per step",{},"args":)"
                        R"({{"read":{:.3f},"parse":{:.3f},"decode":{:.3f},"augment":{:.3f}}}}})",
                        rank.rank, span, event.input_ms[0], event.input_ms[1], event.input_ms[2],
                        event.input_ms[3]));
        break;
    }
  }
}

void TraceJson::Close() { out_ << "\n]\n"; }

}  // namespace carole::monitoring
