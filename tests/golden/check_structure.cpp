#include <gtest/gtest.h>

#include "nets/summary.h"
#include "tests/golden/check_net.h"
#include "tests/golden/formula.h"
#include "tests/golden/pytorch.h"

namespace carole::golden {
namespace {

using nlohmann::json;

std::vector<int64_t> Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

void CheckVariables(const Graph& graph, const json& variables) {
  ASSERT_EQ(graph.variables().size(), variables.size());
  for (size_t v = 0; v < variables.size(); ++v) {
    const Variable& got = graph.variables()[v];
    const json& want = variables[v];
    ASSERT_EQ(got.name, want["name"].get<std::string>()) << "variable " << v;
    EXPECT_EQ(Dims(got.tf_shape), want["shape"].get<std::vector<int64_t>>()) << got.name;
    EXPECT_EQ(got.trainable, want["trainable"].get<bool>()) << got.name;
    EXPECT_EQ(got.l2_regularized, want["l2_regularised"].get<bool>()) << got.name;  // as recorded
  }
}

void ExpectFirst(const std::vector<float>& got, const json& first, const std::string& what) {
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR(got[i], first[i].get<double>(), 1e-8) << what << " element " << i;
  }
}

void CheckFormula(const Graph& graph, const json& golden) {
  const json& input = golden["input"];
  ExpectFirst(FormulaInput("input", 5), input["first5"], "input");
  const std::string name = golden["formula_check"]["variable"];
  for (const Variable& v : graph.variables()) {
    if (IsPyTorch(golden) && PyTorchName(v.name) == name) {
      const auto values = PyTorchFormula(v.name, v.tf_shape, golden["kernel_scale"]);
      return ExpectFirst(InPyTorchOrder(values, v.tf_shape), golden["formula_check"]["first5"],
                         name);
    }
    if (v.name != name) continue;
    ExpectFirst(FormulaVariable(v.name, v.tf_shape, golden["kernel_scale"]),
                golden["formula_check"]["first5"], name);
    return;
  }
  ADD_FAILURE() << "no variable " << name;
}

}  // namespace

void CheckStructure(const nets::NetEntry& net, const json& golden) {
  const json& input = golden["input"]["shape"];
  nets::ModelOptions options{.batch_size = input[0],
                             .image_size = input[1],
                             .channels = input[3],
                             .num_classes = golden["num_classes"],
                             .training = true};
  EXPECT_EQ(net.image_size, golden["default_image_size"].get<int64_t>());
  {
    const nets::Model model = nets::BuildModel(net, options);
    CheckVariables(*model.graph, golden["variables"]);
    CheckFormula(*model.graph, golden);
  }
  for (int classes : {10, 1000, 1001}) {
    options.num_classes = classes;
    const nets::Model model = nets::BuildModel(net, options);
    const nets::ParameterCount got = nets::CountParameters(*model.graph);
    const json& want = golden["param_count"];
    const std::string suffix = std::to_string(classes);
    EXPECT_EQ(got.trainable, want["trainable_" + suffix].get<int64_t>()) << classes << " classes";
    EXPECT_EQ(got.trainable + got.statistics, want["all_" + suffix].get<int64_t>())
        << classes << " classes";
  }
}

}  // namespace carole::golden
