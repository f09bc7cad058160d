// Quantization-aware training compared with TensorFlow's numbers: where fake quantization goes, an
// evaluation, training steps with and without delay, and trajectories. The files in
// tests/data/quantize say how they were made.
//
// The main check runs the reference backend in double, where rounding to codes removes differences
// in the last digits: it must agree to 1e-8. In fp32, a value at the edge between two codes may get
// the other one, and in deep nets each such flip disturbs what follows. So other backends are
// compared with 16 bits, where steps are small, and with 8 bits only in shallow nets.
#include "nets/quantization/quantize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "nets/nets.h"
#include "src/backend/backend.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/relu.h"
#include "src/graph/quantization_names.h"
#include "tests/golden/quantize_checks.h"
#include "tests/golden/quantized_session.h"

namespace carole::golden {
namespace {

using nlohmann::json;

constexpr double kDouble = 1e-8;  // relative, in double

const Backend& ReferenceBackend() {
  static const auto backend = MakeReferenceBackend(2);
  return *backend;
}

class QuantizeGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { golden_ = Load(GetParam()); }

  double decay() const { return golden_["weight_decay"]; }
  std::vector<double> Logits(const QuantizedSession& session) const {
    return session.Output(session.quants().at(LastQuant(golden_)));
  }
  void CheckLogits(const QuantizedSession& session, const json& want, double tolerance) const {
    ExpectRows(Logits(session), want["logits_f64"], tolerance, "quantized logits");
    const bool differs = want.contains("logits_returned_f64");
    if (differs)
      ExpectRows(session.Output(session.model().logits), want["logits_returned_f64"], tolerance,
                 "logits");
  }

  json golden_;
};

TEST_P(QuantizeGolden, PutsFakeQuantizationWhereTensorFlowDoes) {
  const QuantizedSession session(SetupOf(golden_), ReferenceBackend(), DType::kF32);
  std::map<std::string, bool> want, got;
  for (const json& quant : golden_["fake_quant"]) want[quant["name"]] = quant["narrow"];
  for (const Node& node : session.graph().nodes()) {
    if (node.kind == op::kFakeQuant)
      got[node.name] = node.attributes.as<FakeQuantAttributes>().narrow;
  }
  EXPECT_EQ(got, want);
  EXPECT_EQ(std::ranges::count_if(session.graph().nodes(),
                                  [](const Node& n) { return n.kind == op::kFoldedBatchNorm; }),
            static_cast<int64_t>(golden_["folded"].size()));
  const json& added = golden_["variables_added"];
  EXPECT_EQ(std::ranges::count_if(session.graph().variables(),
                                  [](const Variable& v) { return !v.model_variable; }),
            added["train_count"].get<int64_t>());
  for (const json& row : added.value("all", json::array()))
    EXPECT_EQ(session.Scalar(row[0]), row[1].get<double>()) << row[0];
}

TEST_P(QuantizeGolden, Evaluates) {
  NetSetup setup = SetupOf(golden_);
  setup.training = false;
  QuantizedSession session(setup, ReferenceBackend(), DType::kF64);
  const json& want = golden_["eval"];
  for (const json& row : want["per_quant"]) {
    const std::string name = golden_["fake_quant"][row[0].get<size_t>()]["name"];
    session.SetScalar(name + "/min", row[1]);
    session.SetScalar(name + "/max", row[2]);
  }
  for (int run = 0; run < 2; ++run) {  // an evaluation changes no range
    session.Run("input", LabelsOf(golden_), decay());
    CheckLogits(session, want, kDouble);
    CheckQuants(session, golden_, want["per_quant"], 1e-6);
  }
}

TEST_P(QuantizeGolden, Trains) {
  QuantizedSession session(SetupOf(golden_), ReferenceBackend(), DType::kF64);
  session.Run("input", LabelsOf(golden_), decay());
  const json& want = golden_["train"];
  CheckLosses(session, want["loss"], kDouble);
  CheckLogits(session, want, kDouble);
  CheckQuants(session, golden_, want["per_quant"], kDouble);
  CheckGradients(session, want["grads"], kDouble);
  for (const json& row : want.value("bn_after_one_step", json::array())) {
    const int v = session.Find(row[0]);
    ASSERT_GE(v, 0) << row[0];
    ExpectNear(Norm(session.Values(static_cast<size_t>(v))), row[1], kDouble, row[0]);
  }
}

TEST_P(QuantizeGolden, TrainsWith16Bits) {
  NetSetup setup = SetupOf(golden_);
  setup.bits = 16;
  QuantizedSession session(setup, ReferenceBackend(), DType::kF64);
  session.Run("input", LabelsOf(golden_), decay());
  const json& want = golden_["train_16bit"];
  CheckLosses(session, want["loss"], kDouble);
  CheckLogits(session, want, kDouble);
  CheckGradients(session, want["grads"], kDouble);
}

TEST_P(QuantizeGolden, TrainsAsTheFloatNetBeforeTheDelay) {
  NetSetup setup = SetupOf(golden_);
  setup.delay = 2;
  QuantizedSession session(setup, ReferenceBackend(), DType::kF64);
  session.Run("input", LabelsOf(golden_), decay());
  const json& want = golden_["train_before_delay"];
  ExpectNear(session.TotalLoss(), want["total_f64"], kDouble, "total loss");
  CheckLogits(session, want, kDouble);
}

TEST_P(QuantizeGolden, TakesThreeSteps) {
  const json& steps = golden_["steps"];
  for (const int delay : {0, 2}) {
    SCOPED_TRACE(delay);
    NetSetup setup = SetupOf(golden_);
    setup.delay = delay;
    QuantizedSession session(setup, ReferenceBackend(), DType::kF64);
    const json& want = steps[std::to_string(delay)];
    for (int step = 0; step < 3; ++step) {
      session.RunStep(step, setup.batch, decay());
      ExpectNear(session.TotalLoss(), want["total_f64"][static_cast<size_t>(step)], kDouble,
                 "total loss");
      for (const json& row : want["ranges"]) {
        const std::string name = golden_["fake_quant"][row[0].get<size_t>()]["name"];
        if (step == 1) continue;
        ExpectNear(session.Scalar(name + "/min"), row[step == 0 ? 1 : 3], kDouble, name);
        ExpectNear(session.Scalar(name + "/max"), row[step == 0 ? 2 : 4], kDouble, name);
      }
      if (step < 2) session.ApplySgd(steps["learning_rate"]);
    }
    ExpectRows(Logits(session), want["logits_step3_f64"], kDouble, "logits");
    for (const json& row : want.value("debias_after_3", json::array())) {
      const std::string name = golden_["fake_quant"][row[0].get<size_t>()]["name"];
      const std::string state = name + "/" + name;
      ExpectNear(session.Scalar(state + "/min/biased"), row[1], kDouble, state);
      ExpectNear(session.Scalar(state + "/max/biased"), row[2], kDouble, state);
      EXPECT_EQ(session.Scalar(state + "/min/local_step"), row[3].get<double>());
      EXPECT_EQ(session.Scalar(state + "/max/local_step"), row[4].get<double>());
    }
    if (delay > 0) {
      EXPECT_EQ(session.Scalar(kQuantizationStep), 3);
    }
  }
}

TEST_P(QuantizeGolden, QuantizesBothProductsOfDropout) {
  if (!golden_.contains("train_dropout"))
    GTEST_SKIP() << "skipped: the file of this net has no step with dropout";
  NetSetup setup = SetupOf(golden_);
  setup.uses_dropout = true;
  QuantizedSession session(setup, ReferenceBackend(), DType::kF64);
  session.SetMasks();
  session.Run("input", LabelsOf(golden_), decay());
  const json& want = golden_["train_dropout"];
  CheckLosses(session, want["loss"], kDouble);
  CheckLogits(session, want, kDouble);
  CheckGradients(session, want["grads"], kDouble);
}

std::vector<std::string> Nets() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    if (json::parse(file).contains("train_16bit")) names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Nets, QuantizeGolden, ::testing::ValuesIn(Nets()),
                         [](const auto& info) { return info.param; });

// A backend that computes in fp32, and how near it must be to the doubles.
struct Fp32Case {
  BackendEntry backend;
  std::string net;
  double logits, gradients;  // with 16 bits; of their range, and of the median gradient's norm
};

void PrintTo(const Fp32Case& c, std::ostream* out) { *out << c.net << "_" << c.backend.name; }

class QuantizeFp32 : public ::testing::TestWithParam<Fp32Case> {};

TEST_P(QuantizeFp32, IsNearTheDoublesWith16Bits) {
  const Fp32Case& c = GetParam();
  if (const std::string problem = c.backend.unavailable_reason(); !problem.empty())
    GTEST_SKIP() << "skipped: " << problem;
  const auto backend = c.backend.make(2);
  const json golden = Load(c.net), want = golden["train_16bit"];
  NetSetup setup = SetupOf(golden);
  setup.bits = 16;
  QuantizedSession session(setup, *backend, DType::kF32);
  session.Run("input", LabelsOf(golden), golden["weight_decay"]);
  ExpectNear(session.TotalLoss(), want["loss"]["total"]["f64"], 0.01, "total loss");
  ExpectRows(session.Output(session.quants().at(LastQuant(golden))), want["logits_f64"], c.logits,
             "quantized logits");
  std::vector<double> deviations;
  for (const json& row : want["grads"]) {
    const auto gradient = session.Gradient(static_cast<size_t>(session.Find(row[0])));
    deviations.push_back(std::abs(Norm(gradient) / row[1].get<double>() - 1));
  }
  std::ranges::sort(deviations);
  EXPECT_LE(deviations[deviations.size() / 2], c.gradients);
}

std::vector<Fp32Case> Fp32Cases() {
  std::vector<Fp32Case> cases;
  for (const BackendEntry& backend : {kBackends[0], kBackends[1], kCudaBackend}) {
    cases.push_back({backend, "lenet", 1e-3, 1e-4});
    cases.push_back({backend, "cifarnet", 1e-3, 1e-4});
    cases.push_back({backend, "mobilenet_v1_025", 0.01, 0.05});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantizeFp32, ::testing::ValuesIn(Fp32Cases()),
                         ::testing::PrintToStringParamName());

TEST(QuantizePlacement, IsTensorFlows) {
  const json placement = Load("placement");
  for (const auto& [net, want] : placement.items()) {
    if (!want.is_object()) continue;
    SCOPED_TRACE(net);
    nets::ModelOptions options{.batch_size = 1, .training = true, .dropout = false};
    options.quantization = nets::QuantizationOptions();
    const nets::Model model = nets::BuildModel(nets::FindNet(net), options);
    std::set<std::string> got, names;
    std::map<std::string, int> kinds;
    for (const Node& node : model.graph->nodes()) {
      if (node.kind != op::kFakeQuant) continue;
      got.insert(node.name);
      std::string kind = node.name.substr(node.name.rfind('/') + 1);
      if (kind.ends_with("_1") || kind.ends_with("_2")) kind = kind.substr(0, kind.size() - 2);
      ++kinds[kind];
    }
    for (const json& row : want.value("list", json::array())) names.insert(row[0]);
    for (const auto& [kind, count] : want["by_kind"].items())
      EXPECT_EQ(kinds[kind], count.get<int>()) << kind;
    EXPECT_EQ(got.size(), want["fake_quants"].get<size_t>());
    if (!names.empty()) {
      EXPECT_EQ(got, names);
    }
  }
}

// TF-Slim has a ReLU in each branch of a NASNet cell, and the rewriter quantizes the first one
// after a layer only. The first layer of a cell is quantized before its ReLUs, because TF-Slim's
// tf.split() is in between. Sums are made in the scope "combine".
TEST(QuantizePlacement, OfNasnetsFollowsTfSlimsCells) {
  for (const char* net : {"nasnet_mobile", "pnasnet_mobile"}) {
    SCOPED_TRACE(net);
    const nets::Model model =
        nets::BuildModel(nets::FindNet(net), {.batch_size = 1,
                                              .training = true,
                                              .dropout = false,
                                              .quantization = nets::QuantizationOptions()});
    const Graph& graph = *model.graph;
    const auto quant = [&](const std::string& name) {
      const auto& nodes = graph.nodes();
      const auto found = std::ranges::find_if(
          nodes, [&](const Node& n) { return n.kind == op::kFakeQuant && n.name == name; });
      EXPECT_NE(found, nodes.end()) << name;
      return found == nodes.end() ? nullptr : &*found;
    };
    const auto kind_of = [&](const Node& node) {  // of the node whose result is quantized
      return graph.nodes()[graph.value(node.inputs[kPosition<FakeQuantInputs>.x]).producer].kind;
    };
    const auto num_readers = [&](const Node& node) {
      return std::ranges::count_if(graph.nodes(), [&](const Node& reader) {
        return std::ranges::count(reader.inputs, node.outputs[0]) > 0;
      });
    };
    const Node* first = quant("cell_0/1x1/act_quant");
    const Node* stem = quant("conv0/act_quant");
    const Node* sum = quant("cell_0/comb_iter_0/combine/add/activation_AddV2_quant");
    ASSERT_TRUE(first != nullptr && stem != nullptr && sum != nullptr);
    EXPECT_EQ(kind_of(*first), op::kFoldedBatchNorm);
    EXPECT_GT(num_readers(*first), 1);
    EXPECT_EQ(kind_of(*stem), op::kRelu);
    EXPECT_EQ(num_readers(*stem), 2) << "the layer and its convolution for statistics";
    EXPECT_EQ(kind_of(*sum), op::kAdd);
  }
}

TEST(QuantizeTrajectory, IsTensorFlows) {
  const json trajectories = Load("trajectories");
  for (const json& want : trajectories["cases"]) {
    SCOPED_TRACE(
        fmt::format("{} {}", want["net"].get<std::string>(), want["quant_delay"].get<int>()));
    const nets::NetEntry& net = nets::FindNet(want["net"].get<std::string>());
    const int64_t batch = want["batch"];
    QuantizedSession session({.net = want["net"],
                              .batch = batch,
                              .size = want["size"],
                              .channels = net.channels,
                              .delay = want["quant_delay"]},
                             ReferenceBackend(), DType::kF64);
    for (int step = 0; step < 10; ++step) {
      session.RunStep(step, batch, 4e-5);
      ExpectNear(session.TotalLoss(), want["total_loss_f64"][static_cast<size_t>(step)], kDouble,
                 fmt::format("loss of step {}", step));
      session.ApplySgd(want["learning_rate"]);
    }
    for (const json& row : want["final_weights"]) {
      const auto v = static_cast<size_t>(session.Find(row[0]));
      ExpectNear(Norm(session.Values(v)), row[1], kDouble, row[0]);
      for (const json& sample : row[2])
        ExpectNear(session.Values(v).at(sample[0].get<size_t>()), sample[1], kDouble, row[0]);
    }
    for (const json& row : want["final_ranges"]) {
      const std::string name = row[0];
      ExpectNear(session.Scalar(name + "/min"), row[1], kDouble, name);
      ExpectNear(session.Scalar(name + "/max"), row[2], kDouble, name);
    }
  }
}

}  // namespace
}  // namespace carole::golden
