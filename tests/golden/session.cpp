#include "tests/golden/session.h"

#include <algorithm>

#include "src/graph/autodiff.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/recompute.h"
#include "src/graph/precision.h"
#include "src/graph/rewrites.h"
#include "tests/golden/formula.h"
#include "tests/golden/pytorch.h"
#include "tests/support/elements.h"

namespace carole::golden {
namespace {

using testing::Fill;

// The memory budget for activations. It is enough for all nets except the largest, which recompute
// activations in backward.
constexpr size_t kActivationBytes = size_t{4} << 30;

}  // namespace

std::vector<std::vector<float>> FormulaVariables(const Graph& graph, const nlohmann::json& golden) {
  const auto formula = IsPyTorch(golden) ? PyTorchFormula : FormulaVariable;
  const double kernel_scale = golden["kernel_scale"];
  std::vector<std::vector<float>> values;
  for (const auto& v : graph.variables()) {
    values.push_back(formula(v.name, v.tf_shape, kernel_scale));
  }
  return values;
}

Session::Session(nets::Model model, bool training, const Backend& backend,
                 const std::vector<std::vector<float>>& values, const Session* share)
    : model_(std::move(model)), store_(share == nullptr ? nullptr : share->store_) {
  Fuse(*model_.graph, backend);
  if (training) Differentiate(*model_.graph);
  StoreActivationsAs(backend.activation_dtype(), *model_.graph);
  executable_ = std::make_unique<Executable>(
      training ? CompileWithin(*model_.graph, backend, kActivationBytes)
               : Compile(*model_.graph, backend, {.share_layouts_of = store_}));
  if (share == nullptr) {
    own_store_ = executable_->MakeStore();
    store_ = own_store_.get();
    for (size_t v = 0; v < values.size(); ++v) store_->Write(static_cast<int>(v), values[v]);
  }
  executable_->Bind(*store_);
}

void Session::Run(std::span<const int32_t> labels, double loss_scale) {
  loss_scale_ = loss_scale;
  const Tensor images = executable_->Input("images");
  Fill(images, FormulaInput("input", images.size()));
  Fill(executable_->Input("labels"), std::vector<int32_t>(labels.begin(), labels.end()));
  const double weight = loss_scale / static_cast<double>(labels.size());
  Fill(executable_->Input("weights"), std::vector<double>(labels.size(), weight));
  executable_->Run({});
}

std::vector<double> Session::Read(const std::byte* arena, size_t v) const {
  std::vector<double> values(static_cast<size_t>(store_->variables()[v].shape.size()));
  store_->ReadFrom(arena, static_cast<int>(v), std::span<double>(values));
  return values;
}

std::vector<double> Session::Variable(size_t v) const {
  return Read(store_->base_of(static_cast<int>(v)), v);
}

std::vector<double> Session::Gradient(size_t v) const {
  std::vector<double> values = Read(store_->gradients_base(), v);
  for (double& value : values) value /= loss_scale_;
  return values;
}

}  // namespace carole::golden
