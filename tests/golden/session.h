// One model with the formula weights, ready to run on a backend.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nets/nets.h"
#include "src/graph/executable.h"

namespace carole::golden {

// Formula values of all variables, in the order of the graph.
std::vector<std::vector<float>> FormulaVariables(const Graph& graph, double kernel_scale);

class Session {
 public:
  // Fuses, and in training differentiates, the model's graph. `share`: runs on that session's
  // variables, which must outlive this; else on its own, filled with `values`.
  Session(nets::Model model, bool training, const Backend& backend,
          const std::vector<std::vector<float>>& values, const Session* share = nullptr);

  // One run over the formula's images and these labels, each weighing 1/N; what flows back is
  // multiplied by a scale on its way.
  void Run(std::span<const int32_t> labels, double loss_scale = 1);

  const nets::Model& model() const { return model_; }
  const Graph& graph() const { return *model_.graph; }
  std::vector<double> Output(ValueId value) const { return executable_->Output(value); }
  double Loss(ValueId loss) const { return executable_->Output(loss)[0] / loss_scale_; }
  // Values in TensorFlow's order: the weight or statistic, the gradient.
  std::vector<double> Variable(size_t v) const;
  std::vector<double> Gradient(size_t v) const;

 private:
  std::vector<double> Read(const std::byte* arena, size_t v) const;

  nets::Model model_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> own_store_;
  VariableStore* store_;
  double loss_scale_ = 1;
};

}  // namespace carole::golden
