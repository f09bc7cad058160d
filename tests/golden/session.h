// Session: a model with the weights of formula.h, ready to run on a backend.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "nets/nets.h"
#include "src/graph/plan/executable.h"

namespace carole::golden {

// Returns the values of all variables for a golden file, in the order of the graph.
std::vector<std::vector<float>> FormulaVariables(const Graph& graph, const nlohmann::json& golden);

class Session {
 public:
  // Fuses the graph of the model; for training, also differentiates it. If `share` is given, this
  // session uses the variables of that one, which must outlive it. If not, it has its own
  // variables, with these values.
  Session(nets::Model model, bool training, const Backend& backend,
          const std::vector<std::vector<float>>& values, const Session* share = nullptr);

  // Runs the graph once on the images of formula.h and these labels. Each of the N samples has the
  // weight 1/N. The loss is multiplied by loss_scale; Loss() and Gradient() divide by it again.
  void Run(std::span<const int32_t> labels, double loss_scale = 1);

  const nets::Model& model() const { return model_; }
  const Graph& graph() const { return *model_.graph; }
  std::vector<double> Output(ValueId value) const { return executable_->Output(value); }
  double Loss(ValueId loss) const { return executable_->Output(loss)[0] / loss_scale_; }
  // Returns the values of variable number v, or of its gradient, in TensorFlow's order.
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
