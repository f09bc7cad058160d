#include "tests/golden/quantized_session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "src/backend/ops/dropout.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/multiply.h"
#include "src/graph/autodiff.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/rewrites.h"
#include "src/ops/ops.h"
#include "tests/golden/formula.h"
#include "tests/support/elements.h"

namespace carole::golden {
namespace {

using testing::Fill;

nets::Model Build(const NetSetup& s, DType compute) {
  nets::ModelOptions options{.batch_size = s.batch,
                             .image_size = s.size,
                             .channels = s.channels,
                             .num_classes = 10,
                             .training = s.training,
                             .dropout = s.uses_dropout,
                             .compute = compute};
  options.quantization = {.delay = s.delay, .bits = s.bits};
  return nets::BuildModel(nets::FindNet(s.net), options);
}

}  // namespace

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v * v;
  return std::sqrt(sum);
}

QuantizedSession::QuantizedSession(const NetSetup& setup, const Backend& backend, DType compute)
    : model_(Build(setup, compute)) {
  Graph& g = *model_.graph;
  if (setup.uses_dropout) ReplaceDropout();
  for (Node& node : g.mutable_nodes()) {
    if (node.kind == op::kFakeQuant) quants_[node.name] = node.outputs[0];
    auto* norm = node.attributes.get_if<FoldedBatchNormAttributes>();
    if (norm == nullptr) continue;
    // TensorFlow's rate of moving statistics is an fp32 constant in double, too. Its batch norm
    // in double does not raise a small epsilon, as the one in fp32 does.
    norm->decay = 1 - static_cast<double>(static_cast<float>(1 - norm->decay));
    if (setup.epsilon != 0) norm->epsilon = setup.epsilon;
  }
  for (const auto& [name, value] : quants_) g.MarkOutput(value);
  Fuse(g, backend);
  if (setup.training) Differentiate(g);
  executable_ = std::make_unique<Executable>(Compile(g, backend));
  store_ = executable_->MakeStore();
  store_->Initialize(1);
  for (size_t v = 0; v < g.variables().size(); ++v) {
    const Variable& variable = g.variables()[v];
    if (variable.model_variable)
      store_->Write(static_cast<int>(v), FormulaVariable(variable.name, variable.tf_shape, 1));
  }
  executable_->Bind(*store_);
}

void QuantizedSession::SetMasks() {
  for (const std::string& name : masks_) {
    const Tensor mask = executable_->Input(name);
    std::vector<double> values(static_cast<size_t>(mask.size()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Uniform(Fnv1a64(name), i) >= 0 ? 2 : 0;
    Fill(mask, values);
  }
}

void QuantizedSession::ReplaceDropout() {
  Graph& g = *model_.graph;
  for (Node& node : g.mutable_nodes()) {
    if (node.kind != op::kDropout) continue;
    const Shape shape = g.shape(node.outputs[0]);
    masks_.push_back(node.name + "/mask");
    const ValueId value = g.AddInput(masks_.back(), shape, g.compute());
    Graph other;
    node.kind = op::kMultiply;
    node.inputs = {node.inputs[0], value};
    const ValueId a = other.AddInput("a", shape, DType::kF32);
    node.gradient = other.nodes()[other.value(ops::Multiply(other, a, a)).producer].gradient;
  }
}

void QuantizedSession::Run(const std::string& input, const std::vector<int32_t>& labels,
                           double weight_decay) {
  const Tensor images = executable_->Input("images");
  Fill(images, FormulaInput(input, images.size()));
  Fill(executable_->Input("labels"), labels);
  const std::vector<double> weights(labels.size(), 1.0 / static_cast<double>(labels.size()));
  Fill(executable_->Input("weights"), weights);
  weight_decay_ = weight_decay;
  if (HasInput(kL2Weight)) Fill(executable_->Input(kL2Weight), std::vector<double>{weight_decay});
  if (HasInput(kQuantizationStep))
    Fill(executable_->Input(kQuantizationStep), std::vector<double>{++step_});
  executable_->Run({});
}

void QuantizedSession::RunStep(int step, int64_t batch, double weight_decay) {
  std::vector<int32_t> labels;
  for (int64_t k = 0; k < batch; ++k)
    labels.push_back(static_cast<int32_t>((7 * step + 5 * k) % 10));
  Run(fmt::format("input/{}", step), labels, weight_decay);
}

void QuantizedSession::ApplySgd(double rate) {
  for (size_t v = 0; v < graph().variables().size(); ++v) {
    if (!graph().variables()[v].trainable) continue;
    std::vector<double> values = Values(v);
    const std::vector<double> gradient = Gradient(v);
    for (size_t i = 0; i < values.size(); ++i) values[i] -= rate * gradient[i];
    store_->WriteTo(store_->base_of(static_cast<int>(v)), static_cast<int>(v),
                    std::span<const double>(values));
  }
}

double QuantizedSession::Loss(const std::string& name) const {
  for (const auto& [loss, value] : graph().losses()) {
    if (loss == name) return Output(value)[0];
  }
  return 0;
}

double QuantizedSession::OptimizerLoss() const {
  double sum = 0;
  for (size_t v = 0; v < graph().variables().size(); ++v) {
    if (IsDecayed(v)) sum += 0.5 * weight_decay_ * std::pow(Norm(Values(v)), 2);
  }
  return sum;
}

std::vector<double> QuantizedSession::Gradient(size_t v) const {
  std::vector<double> gradient(Count(v));
  store_->ReadFrom(store_->gradients_base(), static_cast<int>(v), std::span<double>(gradient));
  const std::vector<double> values = Values(v);
  for (size_t i = 0; IsDecayed(v) && i < values.size(); ++i)
    gradient[i] += weight_decay_ * values[i];
  return gradient;
}

std::vector<double> QuantizedSession::Values(size_t v) const {
  std::vector<double> values(Count(v));
  store_->ReadFrom(store_->base_of(static_cast<int>(v)), static_cast<int>(v),
                   std::span<double>(values));
  return values;
}

double QuantizedSession::Scalar(const std::string& name) const {
  const int v = Find(name);
  if (v < 0) ADD_FAILURE() << "no variable " << name;
  return v < 0 ? NAN : Values(static_cast<size_t>(v))[0];
}

void QuantizedSession::SetScalar(const std::string& name, double value) {
  const int v = Find(name);
  ASSERT_GE(v, 0) << name;
  store_->Write(v, std::vector<float>{static_cast<float>(value)});
}

}  // namespace carole::golden
