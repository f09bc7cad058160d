// The state of a quantized net in training (nets/quantization/quantize.h): the variables that are
// not part of the net itself, and the inputs that the graph needs in each step.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/graph/plan/executable.h"

namespace carole::train {

// Whether a variable of this name is a range of fake quantization or the number of steps.
bool IsQuantizationState(std::string_view name);

// The inputs of a quantized graph: the number of the step, and the factor of the L2 loss.
// Does nothing for a graph without these inputs. All arguments must outlive this. One thread uses
// it.
class QuantizationInputs {
 public:
  QuantizationInputs(const Graph& graph, const Executable& executable, const VariableStore& store);

  // Says that someone else has set the variables. The next Set() then continues their count of
  // steps, which is not the global step if the run began with a checkpoint of another program.
  void ForgetCount() { is_known_ = false; }
  // Sets the inputs of a micro-batch of global step `step`, which counts from 0.
  void Set(int64_t step, double l2_weight);

 private:
  const Executable& executable_;
  const VariableStore& store_;
  const int counter_;  // the variable that counts quantized steps; -1: there is none
  const bool has_step_, has_l2_;
  bool is_known_ = false;
  double ahead_ = 0;  // of the number of global steps done
};

}  // namespace carole::train
