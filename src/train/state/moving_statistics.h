// How much the moving statistics of batch norm have learned. They start from mean 0 and variance 1,
// and after n steps decay^n of that start is left. Evaluation normalizes with them, so a net whose
// run is short for its decay works in training only.
#pragma once

#include <cstdint>
#include <string>

#include "src/graph/graph.h"

namespace carole::train {

// Returns the largest decay of the batch norms in this graph; 0 if it has none.
double StatisticsDecay(const Graph& graph);

// Returns a decay that fits a run of this many steps (0: no end). The statistics are then averages
// over about the last twentieth of the run.
double FitStatisticsDecay(int64_t steps);

// Describes the problem and its remedy if more than 5 % of the start is left after this many steps;
// else returns "". A few steps are too short for any decay. A decay of 0 stands for a net without
// batch norm.
std::string DescribeYoungStatistics(double decay, int64_t steps);

}  // namespace carole::train
