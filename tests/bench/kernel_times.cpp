#include "tests/bench/kernel_times.h"

#include <algorithm>
#include <map>

namespace carole::bench {
namespace {

double Milliseconds(uint64_t ns) { return 1e-6 * static_cast<double>(ns); }

}  // namespace

KernelSummary Summarize(std::vector<KernelTime> kernels, uint64_t window_ns) {
  KernelSummary summary;
  if (kernels.empty()) return summary;
  uint64_t last = 0;
  for (const KernelTime& kernel : kernels) last = std::max(last, kernel.end_ns);
  const uint64_t begin = last - std::min(last, window_ns);
  std::erase_if(kernels, [&](const KernelTime& kernel) { return kernel.start_ns < begin; });
  if (kernels.empty()) return summary;
  std::sort(kernels.begin(), kernels.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.start_ns < b.start_ns; });
  std::map<std::string, KernelSummary::Row> rows;
  const uint64_t first = kernels[0].start_ns;
  uint64_t busy_until = first, idle = 0, longest_gap = 0;
  for (const KernelTime& kernel : kernels) {
    const uint64_t gap = kernel.start_ns - std::min(kernel.start_ns, busy_until);
    idle += gap;
    longest_gap = std::max(longest_gap, gap);
    busy_until = std::max(busy_until, kernel.end_ns);
    KernelSummary::Row& row = rows[kernel.name];
    row.name = kernel.name;
    row.ms += Milliseconds(kernel.end_ns - kernel.start_ns);
    ++row.runs;
  }
  summary.ms = Milliseconds(last - first);
  summary.idle_share = Milliseconds(idle) / summary.ms;
  summary.longest_gap_ms = Milliseconds(longest_gap);
  for (const auto& [name, row] : rows) summary.rows.push_back(row);
  std::sort(summary.rows.begin(), summary.rows.end(),
            [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return summary;
}

}  // namespace carole::bench
