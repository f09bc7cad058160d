// BucketTuner: finds the bucket plan with which steps are fastest, by trying several in the first
// steps. The head of bucket_tuner.cpp explains how.
#pragma once

#include <vector>

#include "collectives/reducer/reducer.h"

namespace carole::collectives {

class BucketTuner {
 public:
  // The chosen plan. Times are means over ranks.
  struct Report {
    int num_buckets = 0;
    double step_ms = 0;
    double exposed_ms = 0;     // exposed communication in a step
    double bound_ms = 0;       // all-reduce of all gradients at once, with nothing else running
    double gb_per_second = 0;  // bus bandwidth of that all-reduce: 2(p-1)/p * bytes / time
  };

  // Both must outlive this object. The reducer must use Reduction::kSum. With one rank the tuner is
  // done at once.
  BucketTuner(Communicator& communicator, Reducer& reducer);

  bool done() const { return round_ == kRounds; }

  // Call this after each step of the reducer until done(). `step_ms` is the duration of the step.
  // Collective. May all-reduce the gradient arena to measure the network, so the gradients must not
  // be needed any more.
  void AfterStep(double step_ms);

  // Valid once done().
  const Report& report() const { return report_; }

 private:
  struct Trial {
    std::vector<Bucket> buckets;
    std::vector<double> step_ms, exposed_ms;  // one value for each timed step
  };

  static constexpr int kRounds = 3;  // number of turns of each candidate

  void AddTrial(std::vector<Bucket> buckets);
  void RecordStep(double step_ms);
  void MeasureNetwork();
  void AddCandidates();
  void Choose();
  double MeanOverRanks(double value);

  Communicator& communicator_;
  Reducer& reducer_;
  std::vector<double> ready_ms_;  // by parameter: sum over the timed steps of the first turn
  double latency_ms_ = 0, ms_per_byte_ = 0;
  std::vector<Trial> trials_;
  int round_ = 0;
  size_t trial_ = 0;  // the candidate whose turn it is
  int step_ = 0;      // number of steps in this turn
  Report report_;
};

}  // namespace carole::collectives
