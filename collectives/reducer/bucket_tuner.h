// BucketTuner: finds the buckets with which steps are fastest, by trying them in the first steps.
//
// The candidates: the buckets that the reducer has; those that finish first by the times at which
// gradients became final and by a measurement of the network (PlanBucketsByTime); and one bucket
// for everything, which wins where communication beside backward slows it down more than it hides.
// They take turns, so that a machine that is slow for a while is slow for all of them.
#pragma once

#include <vector>

#include "collectives/reducer/reducer.h"

namespace carole::collectives {

class BucketTuner {
 public:
  // What was found; means over ranks.
  struct Report {
    int num_buckets = 0;
    double step_ms = 0;
    double exposed_ms = 0;     // waited for sums after backward
    double bound_ms = 0;       // all gradients summed at once, with nothing else to do
    double gb_per_second = 0;  // then on the bus: 2(p-1)/p * bytes / time
  };

  // Both outlive this; the reducer sums. With one rank there is nothing to find.
  BucketTuner(Communicator& communicator, Reducer& reducer);

  bool done() const { return round_ == kRounds; }

  // After each step of the reducer, until done(). Collective. Sums what is left in the gradients
  // once more, to measure.
  void AfterStep(double step_ms);

  // Once done().
  const Report& report() const { return report_; }

 private:
  struct Trial {
    std::vector<Bucket> buckets;
    std::vector<double> step_ms, exposed_ms;  // of the timed steps
  };

  static constexpr int kRounds = 3;  // turns of each candidate

  void AddTrial(std::vector<Bucket> buckets);
  void Count(double step_ms);
  void MeasureNetwork();
  void AddCandidates();
  void Choose();
  double MeanOverRanks(double value);

  Communicator& communicator_;
  Reducer& reducer_;
  std::vector<double> ready_ms_;  // sums over the steps of the first turn
  double latency_ms_ = 0, ms_per_byte_ = 0;
  std::vector<Trial> trials_;
  int round_ = 0;
  size_t trial_ = 0;  // whose turn it is
  int step_ = 0;      // of the turn
  Report report_;
};

}  // namespace carole::collectives
