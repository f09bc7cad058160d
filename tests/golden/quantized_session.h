// QuantizedSession: a quantized net with the weights of formula.h, ready to run on a backend.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nets/nets.h"
#include "src/graph/plan/executable.h"
#include "src/graph/quantization_names.h"

namespace carole::golden {

// The L2 norm.
double Norm(const std::vector<double>& values);

struct NetSetup {
  std::string net;
  int64_t batch = 2, size = 0, channels = 0;
  bool training = true;
  int64_t delay = 0;
  int bits = 8;
  bool uses_dropout = false;  // with the mask of the golden files
  double epsilon = 0;         // of batch norms; 0: the net's
};

class QuantizedSession {
 public:
  QuantizedSession(const NetSetup& setup, const Backend& backend, DType compute);

  // Sets the masks of NetSetup::uses_dropout.
  void SetMasks();
  // Runs the graph once on the images of formula.h with this name.
  void Run(const std::string& input, const std::vector<int32_t>& labels, double weight_decay);
  // The same with the batch of training step number `step`.
  void RunStep(int step, int64_t batch, double weight_decay);
  void ApplySgd(double rate);

  const Graph& graph() const { return *model_.graph; }
  const nets::Model& model() const { return model_; }
  std::vector<double> Output(ValueId id) const { return executable_->Output(id); }
  // Returns the loss of this name; 0 if the graph has none.
  double Loss(const std::string& name) const;
  double RegularizationLoss() const { return Loss(kL2Loss) + OptimizerLoss(); }
  double CrossEntropy() const { return Loss("softmax_cross_entropy_loss") + Loss("aux_loss"); }
  double TotalLoss() const { return CrossEntropy() + RegularizationLoss(); }
  // Returns the gradient of the total loss by variable number v, and the variable's values.
  std::vector<double> Gradient(size_t v) const;
  std::vector<double> Values(size_t v) const;
  // Returns the number of the variable of this name, or -1.
  int Find(const std::string& name) const { return store_->Find(name); }
  double Scalar(const std::string& name) const;
  void SetScalar(const std::string& name, double value);
  // The results of fake quantization by name.
  const std::map<std::string, ValueId>& quants() const { return quants_; }

 private:
  bool HasInput(const std::string& name) const { return graph().FindInput(name) != kNone; }
  // Makes each dropout a multiplication with the mask of the golden files: 0 or 2.
  void ReplaceDropout();
  // The L2 terms of weights that the graph does not regularize itself.
  double OptimizerLoss() const;
  size_t Count(size_t v) const { return static_cast<size_t>(graph().variables()[v].shape.size()); }
  bool IsDecayed(size_t v) const {
    const Variable& variable = graph().variables()[v];
    return variable.l2_regularized && !variable.l2_in_graph;
  }

  nets::Model model_;
  std::map<std::string, ValueId> quants_;
  std::vector<std::string> masks_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> store_;
  double weight_decay_ = 0, step_ = 0;
};

}  // namespace carole::golden
