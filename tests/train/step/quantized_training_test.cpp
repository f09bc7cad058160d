// Whole training steps of quantized nets, compared with TensorFlow's, and with fewer ranks and
// micro-batches. tests/golden/quantize_test.cpp compares the graphs themselves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/backend/ops/folded_batch_norm.h"
#include "tests/support/test_data.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using nlohmann::json;

json ReadCases() {
  return json::parse(std::ifstream(TestData() + "/quantize/trajectories.json"))["cases"];
}

struct Split {
  int ranks = 1;
  int64_t micro_batches = 1;
};

std::unique_ptr<TrainStep> MakeStep(const json& row, const Split& split, const Backend& backend,
                                    FullCommunicator& c) {
  const int64_t rows = row["batch"].get<int64_t>() / split.ranks / split.micro_batches;
  nets::Model model =
      nets::BuildModel(nets::FindNet(row["net"].get<std::string>()),
                       {.batch_size = rows,
                        .image_size = row["size"],
                        .num_classes = 10,
                        .training = true,
                        .dropout = false,
                        .quantization = nets::QuantizationOptions{.delay = row["quant_delay"]},
                        .compute = DType::kF64});
  for (Node& node : model.graph->mutable_nodes()) {
    // TensorFlow's rate of moving statistics is an fp32 constant, even in double.
    if (auto* norm = node.attributes.get_if<FoldedBatchNormAttributes>())
      norm->decay = 1 - static_cast<double>(static_cast<float>(1 - norm->decay));
  }
  auto step = std::make_unique<TrainStep>(std::move(model.graph), backend, c,
                                          StepOptions{.optimizer = "sgd",
                                                      .optimizer_options = {.weight_decay = 4e-5},
                                                      .accumulation_steps = split.micro_batches});
  step->store().Initialize(1);
  for (size_t v = 0; v < step->store().variables().size(); ++v) {
    const VariableSlice& p = step->store().variables()[v];
    if (p.model_variable)
      step->store().Write(static_cast<int>(v), golden::FormulaVariable(p.name, p.tf_shape, 1));
  }
  return step;
}

// The losses of step number `s`; each rank takes its rows of the batch.
StepResult RunStep(TrainStep& step, const json& row, int64_t s, const FullCommunicator& c) {
  const int64_t batch = row["batch"], rows = batch / c.size();
  const int64_t size = row["size"], channels = row["net"] == "lenet" ? 1 : 3;
  const auto pixels = static_cast<size_t>(rows * size * size * channels);
  const auto all =
      golden::FormulaInput("input/" + std::to_string(s), batch * size * size * channels);
  std::vector<int32_t> labels;
  for (int64_t k = c.rank() * rows; k < (c.rank() + 1) * rows; ++k)
    labels.push_back(static_cast<int32_t>((7 * s + 5 * k) % 10));
  return step.Run({.images = std::span(all).subspan(static_cast<size_t>(c.rank()) * pixels, pixels),
                   .labels = labels,
                   .valid = rows,
                   .global_valid = batch},
                  {.step = s, .learning_rate = row["learning_rate"]});
}

double ScalarOf(const TrainStep& step, const std::string& name) {
  const VariableStore& store = const_cast<TrainStep&>(step).store();
  const int v = store.Find(name);
  if (v < 0) return NAN;
  double value = 0;
  store.ReadFrom(store.base_of(v), v, std::span<double>(&value, 1));
  return value;
}

TEST(QuantizedTraining, FollowsTensorFlow) {
  const auto backend = MakeReferenceBackend(2);
  for (const json& row : ReadCases()) {
    const bool has_delay = row["quant_delay"] > 0;
    if ((row["net"] == "lenet") != has_delay) continue;  // the graph test has the others
    SCOPED_TRACE(row["net"].get<std::string>() + row["quant_delay"].dump());
    RunRanks(1, [&](FullCommunicator& c) {
      const auto step = MakeStep(row, {}, *backend, c);
      for (int64_t s = 0; s < 10; ++s) {
        const double want = row["total_loss_f64"][static_cast<size_t>(s)];
        const StepResult result = RunStep(*step, row, s, c);
        EXPECT_NEAR(result.total_loss, want, 1e-8 * want) << "step " << s;
        EXPECT_NEAR(result.data_loss + result.regularization_loss, want, 1e-8 * want);
      }
      for (const json& range : row["final_ranges"]) {
        const std::string name = range[0];
        EXPECT_NEAR(ScalarOf(*step, name + "/min"), range[1].get<double>(), 1e-8) << name;
        EXPECT_NEAR(ScalarOf(*step, name + "/max"), range[2].get<double>(), 1e-7) << name;
      }
      if (row["quant_delay"] > 0) {
        EXPECT_EQ(ScalarOf(*step, "fake_quantization_step"), 10);
      }
    });
  }
}

// A count of a checkpoint is a mean over ranks. On 61 ranks, that of 5 is less than 5.
TEST(QuantizedTraining, ResumesACountThatIsRounded) {
  const auto backend = MakeReferenceBackend(1);
  json row = ReadCases()[0];
  ASSERT_EQ(row["net"], "lenet");
  RunRanks(1, [&](FullCommunicator& c) {
    const auto step = MakeStep(row, {}, *backend, c);
    const int count = step->store().Find("fake_quantization_step");
    step->store().Write(count, std::vector<float>{std::nextafter(5.0F, 0.0F)});
    RunStep(*step, row, 5, c);
    EXPECT_EQ(ScalarOf(*step, "fake_quantization_step"), 6);
  });
}

// Before the delay has passed, ranges do not matter. So losses are equal for each split, with the
// L2 regularization, which must be counted once.
TEST(QuantizedTraining, IsTheSameForEachSplitBeforeTheDelay) {
  const auto backend = MakeReferenceBackend(1);
  json row = ReadCases()[0];
  ASSERT_EQ(row["net"], "lenet");
  row["quant_delay"] = 100;
  std::vector<double> want(3), regularization(3);
  RunRanks(1, [&](FullCommunicator& c) {
    const auto step = MakeStep(row, {}, *backend, c);
    for (int64_t s = 0; s < 3; ++s) {
      const StepResult result = RunStep(*step, row, s, c);
      want[static_cast<size_t>(s)] = result.total_loss;
      regularization[static_cast<size_t>(s)] = result.regularization_loss;
    }
  });
  for (const Split split : {Split{2, 1}, Split{1, 2}, Split{2, 2}}) {
    RunRanks(split.ranks, [&](FullCommunicator& c) {
      const auto step = MakeStep(row, split, *backend, c);
      for (size_t s = 0; s < 3; ++s) {
        const StepResult result = RunStep(*step, row, static_cast<int64_t>(s), c);
        EXPECT_NEAR(result.total_loss, want[s], 1e-9 * want[s]) << s;
        EXPECT_NEAR(result.regularization_loss, regularization[s], 1e-9) << s;
        EXPECT_GT(result.regularization_loss, 0.01);
      }
      EXPECT_EQ(ScalarOf(*step, "fake_quantization_step"), 3);
    });
  }
}

// Ranges come from the images of each rank, also with SyncBN. They have no moving averages. The
// audit compares all replicas after each step.
TEST(QuantizedTraining, RangesAreEqualOnAllRanks) {
  struct Case {
    const char *net, *range;
    int64_t size;
  };
  const auto backend = MakeReferenceBackend(1);
  for (const bool sync_batch_norm : {false, true}) {
    for (const Case& test :
         {Case{"lenet", "LeNet/conv1/act_quant/max", 28},
          Case{"mobilenet_v1_025", "MobilenetV1/MobilenetV1/Conv2d_0/act_quant/max", 32}}) {
      SCOPED_TRACE(fmt::format("{}, SyncBN {}", test.net, sync_batch_norm));
      std::vector<double> maxima(2);
      RunRanks(2, [&](FullCommunicator& c) {
        const nets::NetEntry& entry = nets::FindNet(test.net);
        nets::Model model = nets::BuildModel(entry, {.batch_size = 2,
                                                     .image_size = test.size,
                                                     .num_classes = 10,
                                                     .training = true,
                                                     .dropout = false,
                                                     .quantization = nets::QuantizationOptions{}});
        TrainStep step(std::move(model.graph), *backend, c,
                       {.optimizer = "momentum",
                        .moving_average_decay = 0.9,
                        .sync_batch_norm = sync_batch_norm,
                        .audit_every_n_steps = 1});
        step.store().Initialize(1);
        const auto images = golden::FormulaInput("input/" + std::to_string(c.rank()),
                                                 2 * test.size * test.size * entry.channels);
        const std::vector<int32_t> labels{1, 2};
        for (int64_t s = 0; s < 3; ++s)
          step.Run({.images = images, .labels = labels, .valid = 2, .global_valid = 4},
                   {.step = s, .learning_rate = 0.01});
        maxima[static_cast<size_t>(c.rank())] = ScalarOf(step, test.range);
      });
      EXPECT_GT(maxima[0], 0);
      EXPECT_EQ(maxima[0], maxima[1]);
    }
  }
}

// Optimizers that decay the weights themselves take no part of the loss for it.
TEST(QuantizedTraining, LeavesDecoupledDecayToTheOptimizer) {
  const auto backend = MakeReferenceBackend(1);
  RunRanks(1, [&](FullCommunicator& c) {
    nets::Model model =
        nets::BuildModel(nets::FindNet("lenet"), {.batch_size = 2,
                                                  .training = true,
                                                  .dropout = false,
                                                  .quantization = nets::QuantizationOptions{}});
    TrainStep step(std::move(model.graph), *backend, c,
                   {.optimizer = "adamw", .optimizer_options = {.weight_decay = 0.5}});
    step.store().Initialize(1);
    const auto images = golden::FormulaInput("input", 2 * 28 * 28);
    const std::vector<int32_t> labels{1, 2};
    const int weights = step.store().Find("LeNet/fc3/weights");
    const auto sum = [&] {
      std::vector<float> values(3136 * 1024);
      step.store().Read(weights, values);
      double squares = 0;
      for (float v : values) squares += double{v} * v;
      return squares;
    };
    const double before = sum();
    const StepResult result =
        step.Run({.images = images, .labels = labels, .valid = 2, .global_valid = 2},
                 {.step = 0, .learning_rate = 0.01});
    EXPECT_EQ(result.regularization_loss, 0);
    EXPECT_LT(sum(), before * 0.9995);  // 0.01 * 0.5 of each weight is gone
  });
}

}  // namespace
}  // namespace carole::train
