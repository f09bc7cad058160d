// What a GPU did in the last moments of a program: which kernels took how long, and how long it had
// none. Pure: times in, numbers out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carole::bench {

struct KernelTime {
  std::string name;
  uint64_t start_ns = 0, end_ns = 0;
};

struct KernelSummary {
  struct Row {
    std::string name;
    double ms = 0;
    int64_t runs = 0;
  };
  double ms = 0;          // from the first kernel of the window to the end of the last
  double idle_share = 0;  // of it, in which no kernel ran
  double longest_gap_ms = 0;
  std::vector<Row> rows;  // the longest first
};

// Of the kernels that began in the last `window_ns` before the end of the last one. In any order;
// they may overlap. Empty without kernels.
KernelSummary Summarize(std::vector<KernelTime> kernels, uint64_t window_ns);

}  // namespace carole::bench
