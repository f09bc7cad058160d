// Summarizes what a GPU did at the end of a program: the time of each kernel, and the time without
// a kernel. Pure functions, without CUDA.
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
  double ms = 0;          // from the start of the first kernel to the end of the last one
  double idle_share = 0;  // the share of this time in which no kernel ran
  double longest_gap_ms = 0;
  std::vector<Row> rows;  // by total time, the longest first
};

// Summarizes the kernels that started within the last `window_ns` before the end of the last
// kernel. Kernels may overlap and come in any order. The summary is empty if there are none.
KernelSummary Summarize(std::vector<KernelTime> kernels, uint64_t window_ns);

}  // namespace carole::bench
